//! The layers of the workspace: which crate may use which. An arrow that is not in the table fails.
//! Dev-dependencies are exempt: a test may use whatever it needs.
#![expect(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

/// Each crate with the crates of ours that it may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("clika-executor", &[]),
    ("clika-runtime", &["clika-executor"]),
    ("clika-cli", &["clika-runtime"]),
    ("clika-python", &["clika-cli", "clika-runtime"]),
    (
        "clika-bench",
        &["clika-cli", "clika-executor", "clika-runtime"],
    ),
];

/// Each crate of the workspace with the crates of ours that it uses.
type Arrows = BTreeMap<String, Vec<String>>;

#[test]
fn only_the_allowed_arrows_exist() {
    let problems = problems(&arrows(&workspace()));
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

#[test]
fn a_forbidden_arrow_is_named() {
    let arrows = arrows(&sample(Value::Null));
    assert!(problems(&arrows).contains(&forbidden("clika-executor", "clika-runtime")));
}

#[test]
fn a_dev_dependency_is_exempt() {
    let arrows = arrows(&sample("dev".into()));
    assert!(!problems(&arrows).contains(&forbidden("clika-executor", "clika-runtime")));
}

#[test]
fn a_crate_outside_the_table_is_named() {
    let arrows = Arrows::from([("clika-surprise".to_owned(), vec![])]);
    assert!(problems(&arrows).contains(&unknown("clika-surprise")));
}

/// What `cargo metadata` tells about the workspace.
fn workspace() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

/// A workspace whose executor depends on the runtime, by a dependency of that kind.
fn sample(kind: Value) -> Value {
    serde_json::json!({ "packages": [
        { "name": "clika-executor", "dependencies": [{ "name": "clika-runtime", "kind": kind }] },
        { "name": "clika-runtime", "dependencies": [{ "name": "libc", "kind": null }] },
    ]})
}

fn arrows(metadata: &Value) -> Arrows {
    let packages = list(&metadata["packages"]);
    let ours: Vec<&str> = packages
        .iter()
        .map(|package| text(&package["name"]))
        .collect();
    let used = |package: &Value| {
        list(&package["dependencies"])
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .filter(|name| ours.contains(name))
            .map(str::to_owned)
            .collect()
    };
    packages
        .iter()
        .map(|package| (text(&package["name"]).to_owned(), used(package)))
        .collect()
}

fn problems(arrows: &Arrows) -> Vec<String> {
    let mut problems = Vec::new();
    for (user, used) in arrows {
        match ALLOWED.iter().find(|(name, _)| name == user) {
            None => problems.push(unknown(user)),
            Some((_, allowed)) => problems.extend(
                used.iter()
                    .filter(|name| !allowed.contains(&name.as_str()))
                    .map(|name| forbidden(user, name)),
            ),
        }
    }
    let gone = ALLOWED
        .iter()
        .filter(|(name, _)| !arrows.contains_key(*name));
    problems
        .extend(gone.map(|(name, _)| format!("{name} is in the table but not in the workspace")));
    problems
}

fn forbidden(user: &str, used: &str) -> String {
    format!(
        "the arrow {user} -> {used} is not allowed; ALLOWED in {} says which are",
        file!()
    )
}

fn unknown(name: &str) -> String {
    format!(
        "{name} has no row in ALLOWED of {}; give it one, with the crates it may use",
        file!()
    )
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}
