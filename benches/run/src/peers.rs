//! Other servers, configured for the run.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::subject::{Row, Subject};
use xtask::Result;
use xtask::command::Run;
use xtask::step::Tool;

/// nginx, as Debian packages it.
pub(crate) const NGINX_TOOL: Tool = Tool {
    name: "nginx",
    probe: &["nginx", "-v"],
    install: "apt-get install -y nginx-light",
};
/// Varnish, as Debian packages it.
pub(crate) const VARNISH_TOOL: Tool = Tool {
    name: "Varnish",
    probe: &["varnishd", "-V"],
    install: "apt-get install -y varnish",
};

/// One worker, no log, files by sendfile, connections never closed after a number of requests.
const NGINX: &str = "\
user root;
daemon off;
worker_processes 1;
pid @DIR@/nginx.pid;
error_log @DIR@/nginx.log;
events { worker_connections 1024; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    etag on;
    keepalive_requests 1000000000;
    default_type text/plain;
    client_body_temp_path @DIR@/body;
    proxy_temp_path @DIR@/proxy;
    fastcgi_temp_path @DIR@/fastcgi;
    uwsgi_temp_path @DIR@/uwsgi;
    scgi_temp_path @DIR@/scgi;
    server { listen @ADDRESS@; root @DIR@/files; @MORE@ }
}
";

/// Additional configuration of the second column: nginx opens a file once a minute instead of for each request.
const OPEN_FILES: &str = "open_file_cache max=1000 inactive=60s; open_file_cache_valid 60s;";

/// nginx with files.
pub(crate) fn nginx(rows: &[Row], dir: &Path) -> Result<Subject> {
    start_nginx("nginx", rows, "", dir)
}

/// nginx that keeps its files open.
pub(crate) fn nginx_open_files(rows: &[Row], dir: &Path) -> Result<Subject> {
    start_nginx("nginx, files kept open", rows, OPEN_FILES, dir)
}

/// nginx with files, and `more` lines for its server.
pub(crate) fn start_nginx(
    name: &'static str,
    rows: &[Row],
    more: &str,
    dir: &Path,
) -> Result<Subject> {
    let dir = dir.join(name.replace([' ', ','], "-"));
    fs::create_dir_all(dir.join("files"))?;
    for row in rows {
        fs::write(dir.join("files").join(row.file), vec![b'x'; row.len])?;
    }
    let configuration = |address: SocketAddr| {
        let text = NGINX
            .replace("@DIR@", &dir.to_string_lossy())
            .replace("@MORE@", more);
        fs::write(
            dir.join("nginx.conf"),
            text.replace("@ADDRESS@", &address.to_string()),
        )
    };
    let mut written = Ok(());
    let subject = Subject::start(
        name,
        "",
        |run, address| {
            written = configuration(address);
            run.args(["nginx", "-e"])
                .args([dir.join("nginx.log")])
                .args(["-c"])
                .args([dir.join("nginx.conf")])
        },
        &dir,
    );
    written?;
    subject
}

/// Varnish, with the files of `origin` in its memory for an hour.
pub(crate) fn varnish(origin: &Subject, dir: &Path) -> Result<Subject> {
    varnish_with("64m", "set beresp.ttl = 1h;", origin, dir)
}

/// Varnish with a given amount of memory, and rules for responses.
pub(crate) fn varnish_with(
    memory: &str,
    rules: &str,
    origin: &Subject,
    dir: &Path,
) -> Result<Subject> {
    let dir = dir.join("varnish");
    fs::create_dir_all(&dir)?;
    let (host, port) = (origin.address().ip(), origin.address().port());
    let script = format!(
        "vcl 4.1;\nbackend origin {{ .host = \"{host}\"; .port = \"{port}\"; }}\nsub vcl_backend_response {{ {rules} }}\n"
    );
    fs::write(dir.join("cache.vcl"), script)?;
    let start = |run: Run, address: SocketAddr| {
        run.args([
            "varnishd",
            "-F",
            "-j",
            "none",
            "-a",
            &address.to_string(),
            "-n",
        ])
        .args([dir.join("state")])
        .args([
            "-s",
            &format!("malloc,{memory}"),
            "-p",
            "thread_pools=1",
            "-f",
        ])
        .args([dir.join("cache.vcl")])
    };
    Subject::start("varnish", "", start, &dir)
}
