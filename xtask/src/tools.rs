//! The programs that the steps of `cargo xtask ci` need, and how to install them. Those of one module are there.

use crate::step::Tool;
use crate::wasm;

pub(crate) const RUSTFMT: Tool = Tool {
    name: "rustfmt",
    probe: &["cargo", "fmt", "--version"],
    install: "rustup component add rustfmt",
};
pub(crate) const CLIPPY: Tool = Tool {
    name: "clippy",
    probe: &["cargo", "clippy", "--version"],
    install: "rustup component add clippy",
};
/// A browser.
pub(crate) const CHROMIUM: Tool = Tool {
    name: "Chromium",
    probe: &["/usr/bin/chromium", "--version"],
    install: "apt-get install chromium",
};
pub(crate) const CXX: Tool = Tool {
    name: "a C++ compiler",
    probe: &["c++", "--version"],
    install: "apt-get install g++",
};
pub(crate) const ETCD: Tool = Tool {
    name: "etcd",
    probe: &["etcd", "--version"],
    install: "apt-get install etcd-server",
};
pub(crate) const ETCDCTL: Tool = Tool {
    name: "etcdctl",
    probe: &["etcdctl", "version"],
    install: "apt-get install etcd-client",
};
pub(crate) const FAKETIME: Tool = Tool {
    name: "faketime",
    probe: &["faketime", "--version"],
    install: "apt-get install faketime",
};
pub(crate) const GIT: Tool = Tool {
    name: "git",
    probe: &["git", "--version"],
    install: "apt-get install git",
};
/// A library that azcopy needs.
pub(crate) const LIBSECRET: Tool = Tool {
    name: "libsecret",
    probe: &[
        "python3",
        "-c",
        "import ctypes; ctypes.CDLL('libsecret-1.so.0')",
    ],
    install: "apt-get install libsecret-1-0",
};
pub(crate) const NGINX: Tool = Tool {
    name: "nginx",
    probe: &["nginx", "-v"],
    install: "apt-get install nginx-light",
};
pub(crate) const NODE: Tool = Tool {
    name: "Node",
    probe: &["node", "--version"],
    install: "apt-get install nodejs",
};
pub(crate) const NPM: Tool = Tool {
    name: "npm",
    probe: &["npm", "--version"],
    install: "apt-get install npm",
};
pub(crate) const POSTGRESQL: Tool = Tool {
    name: "PostgreSQL",
    // Debian keeps the server's programs outside of PATH.
    probe: &[
        "sh",
        "-c",
        "ls /usr/lib/postgresql/*/bin/initdb || initdb --version",
    ],
    install: "apt-get install postgresql",
};
/// It has promtool, which tests alerts.
pub(crate) const PROMETHEUS: Tool = Tool {
    name: "Prometheus",
    probe: &["promtool", "--version"],
    install: "apt-get install prometheus",
};
pub(crate) const RCLONE: Tool = Tool {
    name: "rclone",
    probe: &["rclone", "version"],
    install: "apt-get install rclone",
};
pub(crate) const REDIS: Tool = Tool {
    name: "Redis",
    probe: &["redis-server", "--version"],
    install: "apt-get install redis-server",
};
pub(crate) const RESTIC: Tool = Tool {
    name: "restic",
    probe: &["restic", "version"],
    install: "apt-get install restic",
};
pub(crate) const VARNISH: Tool = Tool {
    name: "Varnish",
    probe: &["varnishd", "-V"],
    install: "apt-get install varnish",
};
/// A toolchain that builds for WebAssembly.
pub(crate) const WASM: Tool = wasm::TOOLCHAIN;
