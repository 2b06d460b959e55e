//! The published crates as a registry would serve them: packaged, unpacked, and each compiled alone.
//!
//! `cargo package` can build the packages itself, but takes crates of the same version that depend on each other from
//! a cache keyed by that version, so that a second run would build yesterday's sources. Here the packages are unpacked
//! into a workspace of their own, which replaces each crate of the registry by the unpacked one.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::command::Run;
use crate::step::Context;
use crate::workspace::Package;

/// Packages every published crate and checks each alone, with its default features and with none.
pub(crate) fn check(context: &Context<'_>) -> Result {
    let packages: Vec<&Package> = context.workspace.published().collect();
    let unpacked = context.workspace.target().join("unpacked");
    package(context, &packages)?;
    unpack(context, &packages, &unpacked)?;
    for package in packages {
        compile(context, &unpacked, &package.name, "")?;
        if package.has_features {
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
        // With today's times: cargo rebuilds by time, and all files in a package bear the same old one.
        Run::new("tar", unpacked).args(["-x", "-z", "-m", "-f"]).args([archive]).passes(context.deadline)?;
    }
    fs::write(unpacked.join("Cargo.toml"), manifest(packages))?;
    fs::copy(context.workspace.root().join("Cargo.lock"), unpacked.join("Cargo.lock"))?;
    Ok(())
}

fn compile(context: &Context<'_>, unpacked: &Path, package: &str, features: &str) -> Result {
    // Not --locked: the lock file is the workspace's, and cargo takes out what the published crates do not use.
    Run::cargo(&format!("check --quiet --package {package} {features}"), unpacked)
        // Reuses clippy's build of the other packages.
        .env("CARGO_TARGET_DIR", context.workspace.target())
        .passes(context.deadline)
}

/// A workspace of the unpacked crates in which they are each other's registry.
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
    fn each_crate_is_a_member_and_replaces_the_registry() {
        let package = Package { name: "one".into(), version: "0.1.0".into(), published: true, has_features: false };
        let expected = "[workspace]\nresolver = \"3\"\nmembers = [\"one-0.1.0\"]\n\n[patch.crates-io]\none = { path = \"one-0.1.0\" }\n";
        assert_eq!(manifest(&[&package]), expected);
    }
}
