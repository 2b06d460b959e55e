//! Backup programs from Debian: restic and rclone. Restored files must match the originals byte by byte.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{ACCOUNT, KEY, Server, files};
use crate::Result;
use crate::command::Run;
use crate::step::Context;

/// The storage emulator's address in restic, which cannot be configured.
const EMULATOR: &[u8] = b"127.0.0.1:10000";

/// A folder for all files read and written by the programs, and their server.
struct Backup<'a> {
    context: &'a Context<'a>,
    server: &'a Server,
    folder: PathBuf,
}

/// Runs both programs against a server.
pub(super) fn check(context: &Context<'_>, server: &Server, dir: &Path) -> Result {
    let folder = dir.join(format!("backup-{}", server.name.replace(' ', "-")));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let backup = Backup { context, server, folder };
    backup.restic().map_err(|error| format!("{}, restic: {error}", server.name))?;
    backup.rclone().map_err(|error| format!("{}, rclone: {error}", server.name))?;
    Ok(fs::remove_dir_all(&backup.folder)?)
}

impl Backup<'_> {
    fn restic(&self) -> Result {
        let program = restic_at(self.server.blobs, &self.folder)?;
        let restic = |args: &[&str]| {
            let run = Run::new(&program, &self.folder).args(args.iter().map(OsStr::new));
            run.env("RESTIC_REPOSITORY", "azure:restic:/")
                .env("RESTIC_PASSWORD", "secret")
                .env("RESTIC_CACHE_DIR", self.folder.join("cache"))
                .env("AZURE_ACCOUNT_NAME", ACCOUNT)
                .env("AZURE_ACCOUNT_KEY", KEY)
                .passes(self.context.deadline)
        };
        let kept = self.files("restic-files")?;
        let restored = |name: &str| -> Result {
            restic(&["restore", "latest", "--target", name])?;
            // Absolute paths are restored below the target.
            let inside = kept.strip_prefix("/")?;
            files::compare(&kept, &self.folder.join(name).join(inside))
        };
        let all = kept.to_string_lossy();
        restic(&["init"])?;
        restic(&["backup", &all])?;
        restic(&["check", "--read-data"])?;
        restored("first")?;
        files::change(&kept)?;
        restic(&["backup", &all])?;
        restic(&["forget", "--keep-last", "1", "--prune", "--max-unused", "0"])?;
        restic(&["check", "--read-data"])?;
        restored("second")
    }

    fn rclone(&self) -> Result {
        let endpoint = format!("http://{}/{ACCOUNT}", self.server.blobs);
        let rclone = |args: &[&str]| {
            let config = self.folder.join("rclone.conf");
            Run::new("rclone", &self.folder)
                .args(args.iter().map(OsStr::new))
                .env("RCLONE_CONFIG", config)
                .env("RCLONE_CONFIG_HERE_TYPE", "azureblob")
                .env("RCLONE_CONFIG_HERE_USE_EMULATOR", "true")
                .env("RCLONE_CONFIG_HERE_ENDPOINT", &endpoint)
                // A retry must not hide a rejection.
                .env("RCLONE_RETRIES", "1")
        };
        let passes = |args: &[&str]| rclone(args).passes(self.context.deadline);
        let kept = self.files("rclone-files")?;
        let (all, there) = (kept.to_string_lossy(), "here:rclone");
        let complete = || -> Result {
            // Compares the MD5 reported by the service, then the bytes.
            passes(&["check", &all, there])?;
            passes(&["check", "--download", &all, there])?;
            let listed = |remote: &str| -> Result<Vec<String>> {
                let mut lines: Vec<String> = rclone(&["md5sum", remote]).output()?.lines().map(str::to_owned).collect();
                lines.sort();
                Ok(lines)
            };
            if listed(&all)? != listed(there)? {
                return Err("the service does not report the MD5 of every file".into());
            }
            let listed = rclone(&["lsl", there]).output()?.lines().count();
            let expected = files::read(&kept)?.len();
            if listed == expected { Ok(()) } else { Err(format!("lsl lists {listed} of {expected} files").into()) }
        };
        passes(&["copy", &all, there])?;
        complete()?;
        // A folder with a blank in its name, whose listing rclone signs with a blank and sends with a plus.
        let blank = rclone(&["lsf", "here:rclone/UPPER AND lower"]).output()?;
        if blank.trim() != "with blank.txt" {
            return Err(format!("the folder with blanks in its name has `{blank}`").into());
        }
        files::change(&kept)?;
        passes(&["sync", &all, there])?;
        complete()?;
        let restored = self.folder.join("rclone-restored");
        passes(&["sync", there, &restored.to_string_lossy()])?;
        files::compare(&kept, &restored)?;
        // A move within the service is a copy by the service, then a deletion.
        let moved = "here:rclone-moved";
        passes(&["move", there, moved])?;
        passes(&["check", "--download", &all, moved])?;
        passes(&["purge", moved])?;
        passes(&["purge", there])
    }

    /// Creates a folder with the files to back up.
    fn files(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        files::create(&folder)?;
        Ok(folder)
    }
}

/// Copies the installed restic, with the storage emulator's address replaced by this one.
fn restic_at(address: SocketAddr, folder: &Path) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|place| place.join("restic"));
    let installed = places.find(|place| place.is_file()).ok_or("restic is not installed")?;
    let (bytes, address) = (fs::read(installed)?, address.to_string());
    let Some(bytes) = replaced(bytes, EMULATOR, address.as_bytes()) else {
        return Err(
            format!("this restic does not know the storage emulator, or {address} is too short: install 0.14").into()
        );
    };
    let copy = folder.join("restic");
    fs::write(&copy, bytes)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok(copy)
}

/// Replaces each occurrence of some bytes with as many others. Returns `None` if there is no occurrence, or if the
/// lengths differ.
fn replaced(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Option<Vec<u8>> {
    let found: Vec<usize> =
        bytes.windows(from.len()).enumerate().filter(|(_, part)| *part == from).map(|(at, _)| at).collect();
    if found.is_empty() || from.len() != to.len() {
        return None;
    }
    for at in found {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_in_a_program_is_replaced_in_place() {
        let replaced = |from: &str, to: &str| replaced(b"a 1:23 b 1:23".to_vec(), from.as_bytes(), to.as_bytes());
        assert_eq!(replaced("1:23", "4:56").as_deref(), Some(&b"a 4:56 b 4:56"[..]));
        assert_eq!(replaced("1:23", "4:567"), None);
        assert_eq!(replaced("1:24", "4:56"), None);
    }
}
