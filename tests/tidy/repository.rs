//! The repository: tracked files, parsed sources, and cargo's metadata.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::source::Source;

/// A tracked text file.
pub(crate) struct File {
    /// Relative to the root, with slashes.
    pub(crate) path: String,
    /// Content.
    pub(crate) text: String,
}

/// Input of the rules.
pub(crate) struct Repository {
    /// Tracked text files.
    pub(crate) files: Vec<File>,
    /// Parsed Rust files.
    pub(crate) sources: Vec<Source>,
    /// `cargo metadata`, without dependencies.
    pub(crate) metadata: Value,
}

/// Returns this repository, read once.
pub(crate) fn repository() -> &'static Repository {
    static REPOSITORY: OnceLock<Repository> = OnceLock::new();
    REPOSITORY.get_or_init(|| {
        let files = tracked_files();
        let rust = files.iter().filter(|file| has_extension(file, "rs"));
        let mut sources: Vec<Source> = rust.map(|file| Source::parse(&file.path, &file.text)).collect();
        Source::mark_test_modules(&mut sources);
        let metadata = output("cargo", &["metadata", "--no-deps", "--locked", "--format-version", "1"]);
        Repository { files, sources, metadata: serde_json::from_str(&metadata).unwrap() }
    })
}

/// Returns `true` if the file has this extension.
pub(crate) fn has_extension(file: &File, extension: &str) -> bool {
    Path::new(&file.path).extension().is_some_and(|its| its == extension)
}

fn tracked_files() -> Vec<File> {
    let paths = output("git", &["ls-files", "-z", "--cached"]);
    let files: Vec<File> = paths.split_terminator('\0').filter_map(read).collect();
    assert!(files.len() > 50, "git lists only {} files: not the repository's root?", files.len());
    files
}

/// Returns `None` for a deleted file, a link, or a file that is not text.
fn read(path: &str) -> Option<File> {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if full.is_symlink() {
        return None;
    }
    Some(File { path: path.to_owned(), text: std::fs::read_to_string(full).ok()? })
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).current_dir(env!("CARGO_MANIFEST_DIR")).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
