//! The binary `clikart`.
fn main() -> std::process::ExitCode {
    clika_cli::run(std::env::args_os()).into()
}
