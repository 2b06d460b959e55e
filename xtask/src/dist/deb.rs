//! The package for Debian: a service that systemd runs as a user of its own.

use md5::{Digest, Md5};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use super::lines;
use super::release::{Documents, Release};
use super::tree::{Tree, gzip};
use crate::Result;

const CONTROL: &str = include_str!("../../../packaging/debian/control");
const COPYRIGHT: &str = include_str!("../../../packaging/debian/copyright");
const OVERRIDES: &str = include_str!("../../../packaging/debian/lintian-overrides");
const SETTINGS: &str = include_str!("../../../packaging/ifmatch.toml");
const UNIT: &str = include_str!("../../../packaging/systemd/ifmatch.service");

/// Scripts that dpkg runs.
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("../../../packaging/debian/postinst")),
    ("postrm", include_str!("../../../packaging/debian/postrm")),
    ("prerm", include_str!("../../../packaging/debian/prerm")),
];

/// Returns the name of the package's file.
pub(super) fn file_name(release: &Release<'_>) -> String {
    format!("ifmatch_{}_{}.deb", version(release), release.target.architecture)
}

/// Returns the package: an ar archive of two tar archives.
pub(super) fn build(release: &Release<'_>) -> Result<Vec<u8>> {
    let time = release.time.try_into()?;
    let files = files(release)?;
    let control = control(release, &files);
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.tar("./", time)?)?),
        ("data.tar.gz", gzip(&files.tar("./", time)?)?),
    ];
    let mut package = ar::Builder::new(Vec::new());
    for (name, contents) in members {
        let mut header = ar::Header::new(name.into(), contents.len().try_into()?);
        header.set_mode(0o100_644);
        header.set_mtime(time);
        package.append(&header, contents.as_slice())?;
    }
    Ok(package.into_inner()?)
}

/// Returns the version as Debian writes it: a pre-release is earlier than its release.
fn version(release: &Release<'_>) -> String {
    release.version.replace('-', "~")
}

/// Returns the files to install.
fn files(release: &Release<'_>) -> Result<Tree> {
    let Documents { manual, completions: [bash, zsh, fish], third_party, texts } = release.documents;
    let mut tree = Tree::default();
    tree.program("usr/bin/ifmatch", release.binary.as_slice());
    tree.file("etc/ifmatch/ifmatch.toml", SETTINGS);
    tree.file("lib/systemd/system/ifmatch.service", UNIT);
    for (name, page) in manual {
        tree.file(format!("usr/share/man/man1/{name}.gz"), gzip(page)?);
    }
    tree.file("usr/share/bash-completion/completions/ifmatch", bash.as_str());
    tree.file("usr/share/zsh/vendor-completions/_ifmatch", zsh.as_str());
    tree.file("usr/share/fish/vendor_completions.d/ifmatch.fish", fish.as_str());
    tree.file("usr/share/lintian/overrides/ifmatch", OVERRIDES);
    tree.file("usr/share/doc/ifmatch/copyright", COPYRIGHT);
    tree.file("usr/share/doc/ifmatch/changelog.gz", gzip(changelog(release)?.as_bytes())?);
    tree.file("usr/share/doc/ifmatch/THIRD-PARTY.txt.gz", gzip(third_party.as_bytes())?);
    for (name, text) in texts.iter().filter(|(name, _)| !name.starts_with("LICENSE")) {
        tree.file(format!("usr/share/doc/ifmatch/{name}.gz"), gzip(text)?);
    }
    Ok(tree)
}

/// Returns the files that describe the package to dpkg.
fn control(release: &Release<'_>, files: &Tree) -> Tree {
    let mut tree = Tree::default();
    let kilobytes: usize = files.files().map(|(_, contents)| contents.len().div_ceil(1024)).sum();
    tree.file(
        "control",
        format!(
            "Package: ifmatch\nVersion: {}\nArchitecture: {}\nInstalled-Size: {kilobytes}\n{CONTROL}",
            version(release),
            release.target.architecture
        ),
    );
    let (settings, others): (Vec<_>, Vec<_>) = files.files().partition(|(path, _)| path.starts_with("etc/"));
    tree.file("conffiles", lines(settings.iter().map(|(path, _)| format!("/{path}"))));
    let sum = |(path, contents): &(&str, &[u8])| format!("{}  {path}", hex::encode(Md5::digest(contents)));
    tree.file("md5sums", lines(others.iter().map(sum)));
    for (name, script) in SCRIPTS {
        tree.program(name, script);
    }
    tree
}

/// Returns a log in Debian's form, which leads to that of the project.
fn changelog(release: &Release<'_>) -> Result<String> {
    let date = OffsetDateTime::from_unix_timestamp(release.time)?.format(&Rfc2822)?;
    let maintainer = CONTROL.lines().find_map(|line| line.strip_prefix("Maintainer: "));
    Ok(format!(
        "ifmatch ({}) stable; urgency=medium\n\n  * CHANGELOG.md.gz in this folder has the changes.\n\n -- {}  {date}\n",
        version(release),
        maintainer.ok_or("packaging/debian/control names no maintainer")?,
    ))
}
