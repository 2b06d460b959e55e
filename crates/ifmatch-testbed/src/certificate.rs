//! A certificate that no authority has signed, in files.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::generate_simple_self_signed;

/// A certificate and its key, in the files `certificate.pem` and `key.pem` of a temporary folder.
#[derive(Debug)]
pub struct Certificate {
    folder: tempfile::TempDir,
    pem: String,
}

impl Certificate {
    /// Creates a certificate of a host.
    pub fn of(host: &str) -> Self {
        let signed = generate_simple_self_signed([host.to_owned()]).expect("a host");
        let (folder, pem) = (
            tempfile::tempdir().expect("a temporary folder"),
            signed.cert.pem(),
        );
        fs::write(folder.path().join("certificate.pem"), &pem).expect("the folder is ours");
        fs::write(
            folder.path().join("key.pem"),
            signed.signing_key.serialize_pem(),
        )
        .expect("the folder is ours");
        Self { folder, pem }
    }

    /// Returns the certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the folder of both files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the file of the certificate.
    pub fn file(&self) -> PathBuf {
        self.folder().join("certificate.pem")
    }

    /// Returns the file of the key.
    pub fn key_file(&self) -> PathBuf {
        self.folder().join("key.pem")
    }
}
