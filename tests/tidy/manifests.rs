//! Rules for packages and lock files.

use serde_json::Value;

use crate::repository::File;

/// Published crates share version, edition and licence, and have a description and a minimum version of Rust.
pub(crate) fn published(metadata: &Value) -> Vec<String> {
    let packages: Vec<&Value> =
        metadata["packages"].as_array().unwrap().iter().filter(|package| package["publish"].is_null()).collect();
    assert!(packages.len() > 1, "cargo lists no published crates");
    let shared = ["version", "edition", "license", "repository"];
    let own = ["description", "readme", "rust_version"];
    let wrong = |package: &Value| {
        let differs =
            shared.iter().filter(|field| package[**field] != packages[0][**field] || package[**field].is_null());
        let lacks = own.iter().filter(|field| package[**field].as_str().is_none_or(str::is_empty));
        differs
            .chain(lacks)
            .map(|field| format!("{}: {field} is {}", package["name"], package[*field]))
            .collect::<Vec<_>>()
    };
    packages.iter().flat_map(|package| wrong(package)).collect()
}

/// Required parts of the licences, by file.
const LICENCES: [(&str, &[&str]); 2] = [
    (
        "LICENSE-MIT",
        &[
            "Copyright (c)",
            "Permission is hereby granted, free of charge, to any person obtaining a copy",
            "The above copyright notice and this permission notice shall be included in all",
            "THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY KIND",
        ],
    ),
    (
        "LICENSE-APACHE",
        &[
            "Version 2.0, January 2004",
            "2. Grant of Copyright License.",
            "3. Grant of Patent License.",
            "END OF TERMS AND CONDITIONS",
        ],
    ),
];

/// The repository and each published crate contain the full text of both licences.
pub(crate) fn licences(metadata: &Value) -> Vec<String> {
    let root = metadata["workspace_root"].as_str().unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter().filter(|package| package["publish"].is_null());
    let manifests = packages.map(|package| package["manifest_path"].as_str().unwrap());
    let folders = manifests.filter_map(|manifest| manifest.strip_suffix("/Cargo.toml")).chain([root]);
    let lacking = |folder: &str| {
        let lacks = move |(file, parts): (&str, &[&str])| {
            let path = format!("{folder}/{file}");
            incomplete(&std::fs::read_to_string(&path).unwrap_or_default(), parts)
                .map(|part| format!("{path}: lacks {part:?}"))
        };
        LICENCES.into_iter().filter_map(lacks).collect::<Vec<_>>()
    };
    folders.flat_map(lacking).collect()
}

/// Returns the first part missing from a text.
fn incomplete<'a>(text: &str, parts: &[&'a str]) -> Option<&'a str> {
    parts.iter().copied().find(|part| !text.contains(part))
}

/// Each manifest inherits its lints and the versions of its dependencies from the workspace.
pub(crate) fn inherited(files: &[File]) -> Vec<String> {
    let members = files.iter().filter(|file| {
        let folder = file.path.strip_suffix("/Cargo.toml").unwrap_or_default();
        ["examples", "xtask"].contains(&folder)
            || folder.strip_prefix("crates/").is_some_and(|name| !name.contains('/'))
    });
    members.flat_map(not_inherited).collect()
}

fn not_inherited(manifest: &File) -> Vec<String> {
    let mut wrong = Vec::new();
    if !manifest.text.contains("[lints]\nworkspace = true") {
        wrong.push(format!("{}: does not inherit the workspace's lints", manifest.path));
    }
    let mut section = "";
    for line in manifest.text.lines() {
        if line.starts_with('[') {
            section = line;
            continue;
        }
        if section.contains("dependencies") && line.contains('=') && !inherits(line) {
            wrong.push(format!("{}: a version that belongs in the workspace's manifest: {line}", manifest.path));
        }
    }
    wrong
}

fn file_name(file: &File) -> &str {
    file.path.rsplit('/').next().unwrap_or_default()
}

/// An inherited dependency, or one that is never published: the crate itself, in its tests, or the test support.
fn inherits(line: &str) -> bool {
    line.contains("workspace = true") || line.contains("path = \".")
}

/// No lock file names a registry: the user's tools decide.
pub(crate) fn lock_files(files: &[File]) -> Vec<String> {
    let npm = files.iter().filter(|file| file.path.ends_with("package-lock.json"));
    let resolved = npm.filter(|file| file.text.contains("\"resolved\""));
    let mut wrong: Vec<String> = resolved.map(|file| format!("{}: has `resolved` addresses", file.path)).collect();
    for file in files.iter().filter(|file| file.path.ends_with("Cargo.lock")) {
        let sources = file.text.lines().filter(|line| line.starts_with("source = "));
        let foreign =
            sources.filter(|line| !line.contains("\"registry+https://github.com/rust-lang/crates.io-index\""));
        wrong.extend(foreign.map(|line| format!("{}: {line}", file.path)));
    }
    let configured = files.iter().filter(|file| [".npmrc", "config.toml"].contains(&file_name(file)));
    let redirected = configured.filter(|file| ["registry", "[source"].iter().any(|word| file.text.contains(word)));
    wrong.extend(redirected.map(|file| format!("{}: selects a registry", file.path)));
    wrong
}

#[test]
fn foreign_lock_files_are_found() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let good = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
    assert_eq!(lock_files(&[file("Cargo.lock", good), file("a/package-lock.json", "{\"integrity\": \"x\"}")]).len(), 0);
    let git = file("Cargo.lock", "source = \"git+https://example.org\"\n");
    let npm = file("a/package-lock.json", "{\"resolved\": \"https://example.org\"}");
    assert_eq!(lock_files(&[git, npm, file(".npmrc", "registry=https://example.org")]).len(), 3);
}

#[test]
fn own_versions_and_lints_are_found() {
    let manifest = |text: &str| File { path: "crates/x/Cargo.toml".to_owned(), text: text.to_owned() };
    let good = "[lints]\nworkspace = true\n[dependencies]\nhttp.workspace = true\nhex = { workspace = true }\n";
    assert_eq!(inherited(&[manifest(good)]), [""; 0]);
    assert_eq!(inherited(&[manifest("[package]\nname = \"x\"\n[dev-dependencies]\nhttp = \"1\"\n")]).len(), 2);
    let of_a_target =
        |line: &str| format!("[lints]\nworkspace = true\n[target.'cfg(target_os = \"x\")'.dependencies]\n{line}\n");
    assert_eq!(inherited(&[manifest(&of_a_target("http.workspace = true"))]), [""; 0]);
    assert_eq!(inherited(&[manifest(&of_a_target("http = \"1\""))]).len(), 1);
}

#[test]
fn a_licence_without_its_permission_is_found() {
    let (_, parts) = LICENCES[0];
    assert_eq!(incomplete("MIT License\n\nCopyright (c) 2026\n", parts), Some(parts[1]));
    assert_eq!(incomplete(&parts.join("\n"), parts), None);
}
