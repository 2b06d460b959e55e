//! The contents of a release: a binary, and the documents that come with it.

use std::fs;
use std::path::Path;

use super::build::Target;
use super::tree::Tree;
use crate::Result;
use crate::command::Run;

/// A release for one target.
pub(super) struct Release<'a> {
    /// Version.
    pub version: &'a str,
    /// Seconds since 1970 that all files are dated.
    pub time: i64,
    /// Target.
    pub target: Target,
    /// The binary.
    pub binary: Vec<u8>,
    /// The documents, the same for all targets.
    pub documents: &'a Documents,
}

/// Documents about the binary.
#[derive(Default)]
pub(super) struct Documents {
    /// Manual pages by file name.
    pub manual: Vec<(String, Vec<u8>)>,
    /// Completions for bash, zsh and fish.
    pub completions: [String; 3],
    /// The licences of the libraries in the binary.
    pub third_party: String,
    /// The licences, the description and the changes by file name.
    pub texts: Vec<(&'static str, Vec<u8>)>,
}

impl Documents {
    /// Asks a binary for its manual and completions. Uses `folder` for the manual.
    pub(super) fn of(binary: &Path, folder: &Path, root: &Path, third_party: String) -> Result<Self> {
        Run::new(binary, root).args(["man".as_ref(), folder.as_os_str()]).output()?;
        let mut manual = Vec::new();
        for page in fs::read_dir(folder)? {
            let page = page?;
            manual.push((page.file_name().to_string_lossy().into_owned(), fs::read(page.path())?));
        }
        manual.sort();
        let completions = |shell: &str| Run::new(binary, root).args(["completions", shell]).output();
        let text = |name: &'static str| -> Result<_> { Ok((name, fs::read(root.join(name))?)) };
        Ok(Self {
            manual,
            completions: [completions("bash")?, completions("zsh")?, completions("fish")?],
            third_party,
            texts: vec![text("CHANGELOG.md")?, text("LICENSE-APACHE")?, text("LICENSE-MIT")?, text("README.md")?],
        })
    }
}

impl Release<'_> {
    /// Returns the common part of its files' names.
    pub(super) fn name(&self) -> String {
        format!("ifmatch-{}-{}", self.version, self.target.triple)
    }

    /// Returns the files of the archive.
    pub(super) fn archive(&self) -> Tree {
        let mut tree = Tree::default();
        let Documents { manual, completions: [bash, zsh, fish], third_party, texts } = self.documents;
        tree.program("ifmatch", self.binary.as_slice());
        for (name, page) in manual {
            tree.file(format!("man/man1/{name}"), page.as_slice());
        }
        tree.file("completions/ifmatch.bash", bash.as_str());
        tree.file("completions/_ifmatch", zsh.as_str());
        tree.file("completions/ifmatch.fish", fish.as_str());
        tree.file("THIRD-PARTY.txt", third_party.as_str());
        for (name, text) in texts {
            tree.file(*name, text.as_slice());
        }
        tree
    }
}
