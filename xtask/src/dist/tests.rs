//! The packages of a small binary, read again.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use flate2::read::GzDecoder;

use super::build::Target;
use super::release::{Documents, Release};
use super::{deb, oci, sums, tree};

const TARGET: Target = Target::for_tests();

fn documents() -> Documents {
    Documents {
        manual: vec![("ifmatch.1".into(), b"manual".to_vec())],
        completions: ["bash".into(), "zsh".into(), "fish".into()],
        third_party: "licences of others".into(),
        texts: vec![("LICENSE-MIT", b"licence".to_vec()), ("README.md", b"description".to_vec())],
    }
}

fn release<'a>(version: &'a str, documents: &'a Documents) -> Release<'a> {
    Release { version, time: 1_795_000_000, target: TARGET, binary: b"binary".to_vec(), documents }
}

/// Returns the files and the modes of a compressed archive.
fn unpack(compressed: &[u8]) -> BTreeMap<String, (u32, String)> {
    let mut archive = tar::Archive::new(GzDecoder::new(compressed));
    archive
        .entries()
        .unwrap()
        .filter_map(|entry| {
            let mut entry = entry.unwrap();
            let path = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mut text = Vec::new();
            entry.read_to_end(&mut text).unwrap();
            let text = String::from_utf8_lossy(&text).into_owned();
            entry.header().entry_type().is_file().then(|| (path, (entry.header().mode().unwrap(), text)))
        })
        .collect()
}

/// Returns the members of a Debian package.
fn members(package: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut archive = ar::Archive::new(package);
    let mut members = Vec::new();
    while let Some(entry) = archive.next_entry() {
        let mut entry = entry.unwrap();
        let mut contents = Vec::new();
        entry.read_to_end(&mut contents).unwrap();
        members.push((String::from_utf8(entry.header().identifier().to_vec()).unwrap(), contents));
    }
    members
}

#[test]
fn a_debian_package_has_control_files_and_data() {
    let documents = documents();
    let release = release("0.2.0-rc.1", &documents);
    assert_eq!(deb::file_name(&release), "ifmatch_0.2.0~rc.1_amd64.deb");
    let members = members(&deb::build(&release).unwrap());
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["debian-binary", "control.tar.gz", "data.tar.gz"]);
    assert_eq!(members[0].1, b"2.0\n");

    let control = unpack(&members[1].1);
    let fields = &control["./control"].1;
    for field in ["Package: ifmatch\n", "Version: 0.2.0~rc.1\n", "Architecture: amd64\n", "Depends: adduser\n"] {
        assert!(fields.contains(field), "{field} is missing in\n{fields}");
    }
    assert_eq!(control["./conffiles"].1, "/etc/ifmatch/ifmatch.toml\n");
    for script in ["./postinst", "./postrm", "./prerm"] {
        assert_eq!(control[script].0, 0o755, "{script}");
    }

    let data = unpack(&members[2].1);
    assert_eq!(data["./usr/bin/ifmatch"], (0o755, "binary".to_owned()));
    for path in [
        "./etc/ifmatch/ifmatch.toml",
        "./lib/systemd/system/ifmatch.service",
        "./usr/share/bash-completion/completions/ifmatch",
        "./usr/share/doc/ifmatch/changelog.gz",
        "./usr/share/doc/ifmatch/copyright",
        "./usr/share/man/man1/ifmatch.1.gz",
    ] {
        assert_eq!(data.get(path).map(|(mode, _)| *mode), Some(0o644), "{path}");
    }
    let sums = &control["./md5sums"].1;
    let summed = data.keys().filter(|path| !path.starts_with("./etc/")).map(|path| &path[2..]);
    assert!(summed.eq(sums.lines().map(|line| &line[34..])), "{sums}");
}

#[test]
fn no_script_of_the_package_touches_the_data() {
    let documents = documents();
    let members = members(&deb::build(&release("0.2.0", &documents)).unwrap());
    let control = unpack(&members[1].1);
    for script in ["./postrm", "./prerm"] {
        let text = &control[script].1;
        assert!(!text.contains("rm ") && !text.contains("deluser"), "{text}");
    }
}

#[test]
fn packages_are_reproducible() {
    let documents = documents();
    let release = release("0.2.0", &documents);
    assert_eq!(deb::build(&release).unwrap(), deb::build(&release).unwrap());
    let archive = || tree::gzip(&release.archive().tar("ifmatch/", 7).unwrap()).unwrap();
    assert_eq!(archive(), archive());
    assert!(unpack(&archive()).contains_key("ifmatch/man/man1/ifmatch.1"));
    let [a, b] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    for folder in [&a, &b] {
        oci::write(folder.path(), std::slice::from_ref(&release)).unwrap();
    }
    let index = |folder: &tempfile::TempDir| fs::read(folder.path().join("index.json")).unwrap();
    assert_eq!(index(&a), index(&b));
}

#[test]
fn an_image_runs_as_its_own_user_and_a_changed_blob_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let documents = documents();
    oci::write(folder.path(), &[release("0.2.0", &documents)]).unwrap();
    assert_eq!(oci::verify(folder.path()).unwrap().len(), 1);

    let (config, layers) = oci::read(folder.path(), "amd64").unwrap();
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Healthcheck"]["Test"][2], "health");
    let files = unpack(&tree::gzip(&layers[0]).unwrap());
    assert_eq!(files[oci::BINARY], (0o755, "binary".to_owned()));
    assert!(files["etc/ssl/certs/ca-certificates.crt"].1.starts_with("-----BEGIN CERTIFICATE-----\n"));

    let blobs = fs::read_dir(folder.path().join("blobs/sha256")).unwrap();
    for blob in blobs.map(|blob| blob.unwrap().path()) {
        let contents = fs::read(&blob).unwrap();
        fs::write(&blob, [contents.as_slice(), b"\n"].concat()).unwrap();
        assert!(oci::verify(folder.path()).is_err(), "{}", blob.display());
        fs::write(&blob, contents).unwrap();
    }
    oci::verify(folder.path()).unwrap();
}

#[test]
fn sums_are_those_of_sha256sum() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("empty"), "").unwrap();
    let expected = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  empty\n";
    assert_eq!(sums(folder.path()).unwrap(), expected);
}
