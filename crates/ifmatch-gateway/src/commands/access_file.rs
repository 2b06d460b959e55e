//! The file of the access log, which is opened again for each SIGHUP, so that it can be renamed before.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tracing_subscriber::fmt::MakeWriter;

use crate::error::Error;

/// The file of this process. The log is that of the process, too.
static FILE: OnceLock<AccessFile> = OnceLock::new();
/// Readable for the group, for programs that collect logs.
const MODE: u32 = 0o640;

/// A file to which lines are added.
#[derive(Clone)]
pub(super) struct AccessFile {
    path: Arc<Path>,
    file: Arc<ArcSwap<File>>,
}

/// The file as it was open when a line began.
pub(super) struct Line(Arc<File>);

impl AccessFile {
    /// Opens the file of this process, and creates it if it is missing.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        let file = open(&path)?;
        let opened = Self { path: path.into(), file: Arc::new(ArcSwap::from_pointee(file)) };
        Ok(FILE.get_or_init(|| opened).clone())
    }
}

/// Opens the file of this process again, if there is one.
///
/// # Errors
/// Fails if the file cannot be opened. Lines then still go to the one that was open.
pub(super) fn reopen() -> Result<(), Error> {
    if let Some(AccessFile { path, file }) = FILE.get() {
        file.store(Arc::new(open(path)?));
    }
    Ok(())
}

fn open(path: &Path) -> Result<File, Error> {
    let opened = OpenOptions::new().append(true).create(true).mode(MODE).open(path);
    opened.map_err(|error| Error::runtime(format!("cannot open --access-log {}: {error}", path.display())))
}

impl<'a> MakeWriter<'a> for AccessFile {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(self.file.load_full())
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
