//! Memory and threads that the system refuses.
#![cfg(target_os = "linux")]

/// Runs `body` while this process can get no more than `spare` bytes of address space.
#[expect(unsafe_code, reason = "the standard library sets no limits")]
pub(crate) fn with_address_space<T>(spare: u64, body: impl FnOnce() -> T) -> T {
    let mut usual = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the calls read and write the places they are given, and nowhere else.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_AS, &raw mut usual), 0);
        let scarce = libc::rlimit {
            rlim_cur: address_space() + spare,
            ..usual
        };
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const scarce), 0);
        let result = body();
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &raw const usual), 0);
        result
    }
}

/// The bytes of address space that this process has.
fn address_space() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    pages * 4096
}
