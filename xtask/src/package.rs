//! The published crates as a registry would serve them: packaged, unpacked, and compiled alone.
//!
//! `cargo package` can build the packages itself, but caches dependencies by version: a second run would build the
//! previous sources. Here the packages are unpacked into a separate workspace, which patches the registry with them.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::command::Run;
use crate::step::Context;
use crate::workspace::Package;

/// Packages every published crate and checks each alone, without the features that other packages would enable.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let packages: Vec<&Package> = context.workspace.published().collect();
    let unpacked = context.workspace.target().join("unpacked");
    package(context, &packages)?;
    unpack(context, &packages, &unpacked)?;
    for package in packages {
        compile(context, &unpacked, &package.name, "")?;
        if package.has_features {
            compile(context, &unpacked, &package.name, "--all-features")?;
        }
        if package.has_default_features {
            compile(context, &unpacked, &package.name, "--no-default-features")?;
        }
    }
    Ok(())
}

fn package(context: &Context<'_>, packages: &[&Package]) -> Result {
    let chosen = packages.iter().flat_map(|package| ["--package", &package.name]);
    Run::cargo("package --locked --allow-dirty --no-verify --quiet", context.workspace.root())
        .args(chosen)
        .passes(context.deadline)
}

fn unpack(context: &Context<'_>, packages: &[&Package], unpacked: &Path) -> Result {
    if unpacked.exists() {
        fs::remove_dir_all(unpacked)?;
    }
    fs::create_dir_all(unpacked)?;
    for package in packages {
        let name = format!("{}-{}.crate", package.name, package.version);
        let archive = context.workspace.target().join("package").join(name);
        // With current times: cargo rebuilds by time, and all files in a package have the same old one.
        Run::new("tar", unpacked).args(["-x", "-z", "-m", "-f"]).args([archive]).passes(context.deadline)?;
    }
    fs::write(unpacked.join("Cargo.toml"), manifest(packages))?;
    fs::copy(context.workspace.root().join("Cargo.lock"), unpacked.join("Cargo.lock"))?;
    Ok(())
}

fn compile(context: &Context<'_>, unpacked: &Path, package: &str, features: &str) -> Result {
    // Not --locked: cargo removes the dependencies of unpublished crates from the workspace's lock file.
    Run::cargo(&format!("clippy --quiet --package {package} {features} -- -D warnings"), unpacked)
        // Shares the dependencies that clippy has checked before.
        .env("CARGO_TARGET_DIR", context.workspace.target())
        .passes(context.deadline)
}

/// Manifest of a workspace of the unpacked crates that depend on each other.
fn manifest(packages: &[&Package]) -> String {
    let folders: Vec<String> = packages.iter().map(|package| format!("{}-{}", package.name, package.version)).collect();
    let patches: Vec<String> = packages
        .iter()
        .zip(&folders)
        .map(|(package, folder)| format!("{} = {{ path = \"{folder}\" }}\n", package.name))
        .collect();
    format!("[workspace]\nresolver = \"3\"\nmembers = {folders:?}\n\n[patch.crates-io]\n{}", patches.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_is_a_member_and_a_patch() {
        let package = Package {
            name: "one".into(),
            version: "0.1.0".into(),
            published: true,
            has_features: false,
            has_default_features: false,
        };
        let expected = "[workspace]\nresolver = \"3\"\nmembers = [\"one-0.1.0\"]\n\n[patch.crates-io]\none = { path = \"one-0.1.0\" }\n";
        assert_eq!(manifest(&[&package]), expected);
    }
}
