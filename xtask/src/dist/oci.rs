//! The container image: an OCI image layout with one layer, the binary and the certificates that it trusts.

use std::fmt::Write;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::release::Release;
use super::tree::{Tree, gzip};
use crate::Result;

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// User and group of the process.
pub(super) const USER: u32 = 65532;

/// Path of the binary in the image.
pub(super) const BINARY: &str = "usr/bin/ifmatch";

/// Writes the layout with an image for each release.
pub(super) fn write(folder: &Path, releases: &[Release<'_>]) -> Result {
    let blobs = Blobs { folder: folder.join("blobs/sha256") };
    fs::create_dir_all(&blobs.folder)?;
    let manifests = releases.iter().map(|release| image(&blobs, release)).collect::<Result<Vec<_>>>()?;
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    fs::write(folder.join("index.json"), index.to_string())?;
    fs::write(folder.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
    Ok(())
}

/// Reads the layout again, and compares all sizes and digests. Returns the compressed size of each image.
pub(super) fn verify(folder: &Path) -> Result<Vec<u64>> {
    let blobs = Blobs { folder: folder.join("blobs/sha256") };
    let index: Value = serde_json::from_slice(&fs::read(folder.join("index.json"))?)?;
    let images = list(&index["manifests"])?;
    images
        .iter()
        .map(|descriptor| {
            let manifest: Value = serde_json::from_slice(&blobs.read(descriptor)?)?;
            let config: Value = serde_json::from_slice(&blobs.read(&manifest["config"])?)?;
            let layers = list(&manifest["layers"])?;
            let contents = layers.iter().map(|layer| layer_contents(&blobs, layer)).collect::<Result<Vec<_>>>()?;
            let found: Vec<String> = contents.iter().map(|contents| digest(contents)).collect();
            if json!(found) != config["rootfs"]["diff_ids"] {
                return Err(format!("the layers are {found:?}, but the configuration has {}", config["rootfs"]).into());
            }
            Ok(layers.iter().chain([&manifest["config"]]).filter_map(|blob| blob["size"].as_u64()).sum())
        })
        .collect()
}

/// Returns the contents of this architecture's image: its configuration, and its layers as tar archives.
pub(super) fn read(folder: &Path, architecture: &str) -> Result<(Value, Vec<Vec<u8>>)> {
    let blobs = Blobs { folder: folder.join("blobs/sha256") };
    let index: Value = serde_json::from_slice(&fs::read(folder.join("index.json"))?)?;
    let of_architecture = |image: &&Value| image["platform"]["architecture"] == architecture;
    let image = list(&index["manifests"])?.iter().find(of_architecture).ok_or("the index has no such architecture")?;
    let manifest: Value = serde_json::from_slice(&blobs.read(image)?)?;
    let config = serde_json::from_slice(&blobs.read(&manifest["config"])?)?;
    let layers = list(&manifest["layers"])?;
    Ok((config, layers.iter().map(|layer| layer_contents(&blobs, layer)).collect::<Result<_>>()?))
}

/// Writes an image, and returns its descriptor.
fn image(blobs: &Blobs, release: &Release<'_>) -> Result<Value> {
    let layer = layer(release).tar("", release.time.try_into()?)?;
    let created = OffsetDateTime::from_unix_timestamp(release.time)?.format(&Rfc3339)?;
    let architecture = release.target.architecture;
    let config = json!({
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": {"10000/tcp": {}},
            // Other addresses need a token or an account, which the gateway asks for.
            "Env": ["PATH=/usr/bin", "IFMATCH_LISTEN=0.0.0.0:10000"],
            "Entrypoint": [format!("/{BINARY}")],
            "Cmd": ["serve", "--data", "/data"],
            "Volumes": {"/data": {}},
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            // An extension of Docker, in nanoseconds.
            "Healthcheck": {
                "Test": ["CMD", format!("/{BINARY}"), "health"],
                "Interval": 30_000_000_000_u64,
                "Timeout": 10_000_000_000_u64,
                "StartPeriod": 10_000_000_000_u64,
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        "history": [{"created": created, "created_by": "cargo xtask dist"}],
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.write(CONFIG, config.to_string().as_bytes())?,
        "layers": [blobs.write(LAYER, &gzip(&layer)?)?],
        "annotations": {
            "org.opencontainers.image.title": "ifmatch",
            "org.opencontainers.image.version": release.version,
            "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            "org.opencontainers.image.source": "https://github.com/ifmatch/ifmatch",
            "org.opencontainers.image.created": created,
        },
    });
    let mut descriptor = blobs.write(MANIFEST, manifest.to_string().as_bytes())?;
    descriptor["platform"] = json!({"architecture": architecture, "os": "linux"});
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": release.version});
    Ok(descriptor)
}

/// Returns the files of the image.
fn layer(release: &Release<'_>) -> Tree {
    let mut tree = Tree::default();
    tree.program(BINARY, release.binary.as_slice());
    tree.file("etc/passwd", format!("ifmatch:x:{USER}:{USER}:ifmatch:/data:/sbin/nologin\n"));
    tree.file("etc/group", format!("ifmatch:x:{USER}:\n"));
    tree.file("etc/ssl/certs/ca-certificates.crt", certificates());
    tree.file("usr/share/doc/ifmatch/THIRD-PARTY.txt", release.documents.third_party.as_str());
    for (name, text) in release.documents.texts.iter().filter(|(name, _)| name.starts_with("LICENSE")) {
        tree.file(format!("usr/share/doc/ifmatch/{name}"), text.as_slice());
    }
    tree.folder("data", 0o700, USER);
    tree
}

/// Returns Mozilla's root certificates as PEM, for object stores and registers behind TLS.
fn certificates() -> String {
    webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().fold(String::new(), |mut pem, certificate| {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
            // Writing to a string cannot fail.
            let _ = writeln!(pem, "{}", String::from_utf8_lossy(line));
        }
        pem + "-----END CERTIFICATE-----\n"
    })
}

/// The folder of blobs, each named by its digest.
struct Blobs {
    folder: PathBuf,
}

impl Blobs {
    /// Writes a blob, and returns its descriptor.
    fn write(&self, media_type: &str, contents: &[u8]) -> Result<Value> {
        let digest = digest(contents);
        fs::write(self.path(&digest)?, contents)?;
        Ok(json!({"mediaType": media_type, "digest": digest, "size": contents.len()}))
    }

    /// Reads a blob, and compares it with its descriptor.
    fn read(&self, descriptor: &Value) -> Result<Vec<u8>> {
        let expected = descriptor["digest"].as_str().ok_or("a descriptor has no digest")?;
        let contents = fs::read(self.path(expected)?)?;
        let (found, size) = (digest(&contents), contents.len());
        if found != expected || descriptor["size"] != size {
            return Err(format!("the blob has {size} bytes and the digest {found}, but must be {descriptor}").into());
        }
        Ok(contents)
    }

    fn path(&self, digest: &str) -> Result<PathBuf> {
        Ok(self.folder.join(digest.strip_prefix("sha256:").ok_or("a digest is not a SHA-256")?))
    }
}

fn layer_contents(blobs: &Blobs, layer: &Value) -> Result<Vec<u8>> {
    let mut contents = Vec::new();
    GzDecoder::new(blobs.read(layer)?.as_slice()).read_to_end(&mut contents)?;
    Ok(contents)
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    Ok(value.as_array().ok_or("a list is missing in the image")?)
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
