//! Root file systems to run programs in, by chroot.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Result;
use crate::command::Run;

/// A root file system for one check.
pub(super) struct System {
    name: String,
    root: PathBuf,
}

/// Returns the time limit of a command.
pub(super) fn soon() -> Instant {
    Instant::now() + Duration::from_mins(15)
}

impl System {
    /// Returns a fresh Debian with more packages, separated by commas. Downloads them once, and keeps the files in `folder`.
    pub(super) fn debian(release: &str, packages: &str, folder: &Path) -> Result<Self> {
        let base = folder.join(release);
        if !base.exists() {
            let new = folder.join(format!("{release}.new"));
            remove(&new)?;
            let log = folder.join(format!("{release}.log"));
            println!("$ debootstrap --variant=minbase {release}; its output is in {}", log.display());
            let run =
                Run::new("debootstrap", folder).args(["--variant=minbase", &format!("--include={packages}"), release]);
            run.args([&new]).log_to(&log)?.passes(soon())?;
            fs::rename(new, &base)?;
        }
        Self::copy(&base, folder)
    }

    /// Returns a copy of a root file system.
    pub(super) fn copy(base: &Path, folder: &Path) -> Result<Self> {
        let name = base.file_name().ok_or("the folder of a system needs a name")?.to_string_lossy().into_owned();
        let system = Self::empty(&name, folder)?;
        let base = base.join(".");
        Run::new("cp", folder).args(["--archive".as_ref(), base.as_os_str(), system.root.as_os_str()]).output()?;
        Ok(system)
    }

    /// Returns a root file system without files.
    pub(super) fn empty(name: &str, folder: &Path) -> Result<Self> {
        let root = folder.join(format!("{name}.run"));
        remove(&root)?;
        fs::create_dir_all(&root)?;
        Ok(Self { name: name.to_owned(), root })
    }

    /// Returns its name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of one of its files, outside of it.
    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// Returns the file for the output of a server in it.
    pub(super) fn log(&self) -> PathBuf {
        self.root.with_extension("log")
    }

    /// Runs a command as root.
    pub(super) fn run(&self, command: &[&str]) -> Result {
        self.command(&[], command).passes(soon())
    }

    /// Boots it with systemd, until a service switches it off. It has a network of its own.
    pub(super) fn boot(&self) -> Result {
        let options = ["--quiet", "--register=no", "--keep-unit", "--private-network", "--boot", "--directory"];
        let log = self.log();
        println!("the output of the next command is in {}", log.display());
        Run::new("systemd-nspawn", &self.root).args(options).args([&self.root]).log_to(&log)?.passes(soon())
    }

    /// Returns a command, with options for chroot.
    pub(super) fn command(&self, options: &[&str], command: &[&str]) -> Run {
        Run::new("chroot", &self.root)
            .args(options)
            .args([&self.root])
            .args(command)
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C")
    }
}

fn remove(folder: &Path) -> Result {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}
