//! `cargo xtask dist`: an archive, a Debian package and a container image of the gateway, with a bill of materials.

mod build;
mod check;
mod deb;
mod libraries;
mod oci;
mod release;
#[cfg(test)]
mod tests;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Result;
use crate::command::Run;
use crate::workspace::Workspace;
use build::Target;
use libraries::Libraries;
use release::{Documents, Release};

/// Maximum compressed size of a container image in bytes.
const MAX_IMAGE: u64 = 12_000_000;

/// Options of `cargo xtask dist`.
#[derive(Args)]
pub(crate) struct Options {
    /// Also installs and runs the packages in systems of their own, with the tools of Debian. Needs root.
    #[arg(long)]
    check: bool,
    /// With --check: folder of another Linux system, in which the binary must run. May be repeated.
    #[arg(long, value_name = "DIR", requires = "check")]
    root: Vec<PathBuf>,
}

/// Builds the packages into target/dist, and checks them if asked to.
pub(crate) fn run(options: &Options) -> Result {
    let workspace = Workspace::load()?;
    if options.check {
        check::require(&workspace)?;
    }
    let made = make(&workspace)?;
    if options.check { check::run(&workspace, &made, &options.root) } else { Ok(()) }
}

/// Paths of what was made for this machine's architecture, or for the first one.
struct Made {
    binary: PathBuf,
    package: PathBuf,
    image: PathBuf,
    architecture: &'static str,
}

fn make(workspace: &Workspace) -> Result<Made> {
    let folder = workspace.target().join("dist");
    let targets = build::targets(workspace)?;
    let [first, ..] = targets.as_slice() else { return Err("there is no target".into()) };
    let binaries = targets.iter().map(|target| target.build(workspace)).collect::<Result<Vec<_>>>()?;
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let manual = folder.join("man");
    fs::create_dir_all(&manual)?;
    let native = targets.iter().position(Target::is_native).ok_or("this machine cannot run any of the binaries")?;
    let libraries = Libraries::load(workspace, first)?;
    let documents = Documents::of(&binaries[native], &manual, workspace.root(), libraries.licences()?)?;
    fs::remove_dir_all(&manual)?;
    let version = version(workspace)?;
    let time = time(workspace)?;
    let created = OffsetDateTime::from_unix_timestamp(time)?.format(&Rfc3339)?;
    let mut releases = Vec::new();
    for (target, binary) in targets.iter().zip(&binaries) {
        let release =
            Release { version: &version, time, target: *target, binary: fs::read(binary)?, documents: &documents };
        let name = release.name();
        let archive = release.archive().tar(&format!("{name}/"), time.try_into()?)?;
        write(&folder.join(format!("{name}.tar.gz")), &tree::gzip(&archive)?)?;
        write(&folder.join(deb::file_name(&release)), &deb::build(&release)?)?;
        let libraries = Libraries::load(workspace, target)?;
        let bill = serde_json::to_vec_pretty(&libraries.bill(target, &created)?)?;
        write(&folder.join(format!("{name}.cdx.json")), &bill)?;
        println!("    {} libraries", libraries.len());
        releases.push(release);
    }
    write(&folder.join("SHA256SUMS"), sums(&folder)?.as_bytes())?;
    let image = folder.join(format!("ifmatch-{version}-oci"));
    oci::write(&image, &releases)?;
    for size in oci::verify(&image)? {
        println!("{}: {size} bytes compressed", image.display());
        if size > MAX_IMAGE {
            return Err(format!("the image has more than {MAX_IMAGE} bytes").into());
        }
    }
    Ok(Made {
        binary: binaries[native].clone(),
        package: folder.join(deb::file_name(&releases[native])),
        image,
        architecture: targets[native].architecture,
    })
}

fn version(workspace: &Workspace) -> Result<String> {
    let gateway = workspace.published().find(|package| package.name == "ifmatch-gateway");
    Ok(gateway.ok_or("the workspace has no ifmatch-gateway")?.version.clone())
}

/// Returns the time that all files are dated: `SOURCE_DATE_EPOCH`, or that of the last commit.
fn time(workspace: &Workspace) -> Result<i64> {
    let seconds = std::env::var("SOURCE_DATE_EPOCH")
        .or_else(|_| Run::new("git", workspace.root()).args(["log", "-1", "--format=%ct"]).output())?;
    Ok(seconds.trim().parse()?)
}

fn write(path: &Path, contents: &[u8]) -> Result {
    fs::write(path, contents)?;
    println!("{}: {} bytes", path.display(), contents.len());
    Ok(())
}

/// Returns a line for each file in a folder, as `sha256sum` prints and checks them.
fn sums(folder: &Path) -> Result<String> {
    let mut sums = Vec::new();
    for file in fs::read_dir(folder)? {
        let file = file?;
        let digest = hex::encode(Sha256::digest(fs::read(file.path())?));
        sums.push((file.file_name(), digest));
    }
    sums.sort();
    Ok(lines(sums.into_iter().map(|(name, digest)| format!("{digest}  {}", name.display()))))
}

/// Returns a text of lines.
fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.flat_map(|line| [line, "\n".to_owned()]).collect()
}
