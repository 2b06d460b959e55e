//! Other caches in front of one origin, configured for the run: one worker, no log.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use crate::peers;
use crate::subject::{Row, Subject};
use xtask::Result;
use xtask::command::Run;

/// The origin's header fields, and a path for many small responses.
const ORIGIN: &str = "add_header Cache-Control max-age=86400; \
    location /small/ { add_header Cache-Control max-age=86400; return 200 'a response of 32 bytes or about'; }";

/// nginx as a cache. It stores files, which the system keeps in memory if there is room.
const NGINX: &str = "\
user root;
daemon off;
worker_processes 1;
pid @DIR@/nginx.pid;
error_log @DIR@/nginx.log;
events { worker_connections 2048; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    client_body_temp_path @DIR@/body;
    proxy_temp_path @DIR@/proxy;
    fastcgi_temp_path @DIR@/fastcgi;
    uwsgi_temp_path @DIR@/uwsgi;
    scgi_temp_path @DIR@/scgi;
    proxy_cache_path @DIR@/cache levels=1:2 keys_zone=cache:512m max_size=8g inactive=1d use_temp_path=off;
    open_file_cache max=10000 inactive=60s;
    open_file_cache_valid 60s;
    upstream origin { server @ORIGIN@; keepalive 32; }
    server {
        listen @ADDRESS@ backlog=2048;
        location / {
            proxy_pass http://origin;
            proxy_http_version 1.1;
            proxy_set_header Connection '';
            proxy_cache cache;
            proxy_cache_lock on;
            proxy_cache_lock_timeout 60s;
            proxy_cache_lock_age 60s;
        }
    }
}
";

/// Paths of Traffic Server.
const LAYOUT: &str = "\
prefix: /usr
exec_prefix: /usr
bindir: /usr/bin
sbindir: /usr/bin
sysconfdir: @DIR@/etc
datadir: /usr/share/trafficserver
includedir: /usr/include
libdir: /usr/lib/trafficserver
libexecdir: /usr/lib/trafficserver/modules
localstatedir: @DIR@
runtimedir: @DIR@/run
logdir: @DIR@/log
cachedir: @DIR@/cache
";

/// Differences from its defaults: one event thread, no log, collapsed forwarding.
const RECORDS: &str = "
CONFIG proxy.config.exec_thread.autoconfig INT 0
CONFIG proxy.config.exec_thread.limit INT 1
CONFIG proxy.config.exec_thread.affinity INT 0
CONFIG proxy.config.task_threads INT 1
CONFIG proxy.config.http.server_ports STRING @PORT@:ip-in=127.0.0.1
CONFIG proxy.config.log.logging_enabled INT 0
CONFIG proxy.config.admin.user_id STRING #-1
CONFIG proxy.config.http.cache.required_headers INT 0
CONFIG proxy.config.cache.ram_cache.size INT 536870912
CONFIG proxy.config.http.cache.open_write_fail_action INT 5
CONFIG proxy.config.cache.enable_read_while_writer INT 1
CONFIG proxy.config.http.cache.max_open_read_retries INT 1000
CONFIG proxy.config.http.cache.open_read_retry_time INT 10
";

/// The origin: nginx with files that stay fresh for a day.
pub(crate) fn origin(rows: &[Row], dir: &Path) -> Result<Subject> {
    peers::start_nginx("origin", rows, ORIGIN, dir)
}

/// `ifmatch proxy`.
pub(crate) fn ours(program: &Path, origin: &Subject, dir: &Path) -> Result<Subject> {
    let upstream = format!("http://{}", origin.address());
    let start = |run: Run, address: SocketAddr| {
        run.args([program])
            .args([
                "proxy",
                "--upstream",
                &upstream,
                "--listen",
                &address.to_string(),
            ])
            .args([
                "--cache",
                "4GiB",
                "--max-connections",
                "2000",
                "--max-requests",
                "2000",
            ])
    };
    Subject::start("ifmatch", "", start, dir)
}

/// Sizes of a cache in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// For caches in memory.
    pub(crate) memory: u64,
    /// For caches in files. `None` if all caches have only the size of the memory.
    pub(crate) disk: Option<u64>,
}

/// Starts `ifmatch proxy`, nginx, Varnish or Traffic Server with these sizes.
pub(crate) fn with_sizes(
    which: usize,
    program: &Path,
    origin: &Subject,
    sizes: Sizes,
    dir: &Path,
) -> Result<Subject> {
    let Sizes { memory, disk } = sizes;
    let files = disk.unwrap_or(memory);
    match which {
        0 => {
            let upstream = format!("http://{}", origin.address());
            let folder = dir.join("ifmatch-cache");
            let start = |run: Run, address: SocketAddr| {
                let run = run.args([program]).args(["proxy", "--upstream", &upstream]);
                let run = run.args([
                    "--listen",
                    &address.to_string(),
                    "--cache",
                    &memory.to_string(),
                ]);
                match disk {
                    Some(disk) => run
                        .args(["--cache-disk", &disk.to_string(), "--cache-dir"])
                        .args([folder]),
                    None => run,
                }
            };
            Subject::start("ifmatch", "", start, dir)
        }
        1 => nginx_with(&format!("{files}"), origin, dir),
        2 => peers::varnish_with(&format!("{memory}b"), "", origin, dir),
        // Less is refused.
        _ => traffic_server_with(
            &format!("{}M", (files >> 20).max(128)),
            disk.is_some(),
            origin,
            dir,
        ),
    }
}

/// nginx with `proxy_cache`.
pub(crate) fn nginx(origin: &Subject, dir: &Path) -> Result<Subject> {
    nginx_with("8g", origin, dir)
}

fn nginx_with(size: &str, origin: &Subject, dir: &Path) -> Result<Subject> {
    let dir = dir.join("nginx-cache");
    fs::create_dir_all(&dir)?;
    let mut written = Ok(());
    let start = |run: Run, address: SocketAddr| {
        let text = NGINX.replace("max_size=8g", &format!("max_size={size}"));
        let text = text
            .replace("@DIR@", &dir.to_string_lossy())
            .replace("@ADDRESS@", &address.to_string());
        written = fs::write(
            dir.join("nginx.conf"),
            text.replace("@ORIGIN@", &origin.address().to_string()),
        );
        run.args(["nginx", "-e"])
            .args([dir.join("nginx.log")])
            .args(["-c"])
            .args([dir.join("nginx.conf")])
    };
    let subject = Subject::start("nginx", "", start, &dir);
    written?;
    subject
}

/// Varnish.
pub(crate) fn varnish(origin: &Subject, dir: &Path) -> Result<Subject> {
    peers::varnish_with("4g", "set beresp.ttl = 1h;", origin, dir)
}

/// A plain caching proxy made with Pingora.
pub(crate) fn pingora(program: &Path, origin: &Subject, dir: &Path) -> Result<Subject> {
    let origin = origin.address().to_string();
    Subject::start(
        "Pingora",
        "",
        |run, address| run.args([program]).args([address.to_string(), origin]),
        dir,
    )
}

/// Apache Traffic Server, as Debian packages it.
pub(crate) fn traffic_server(origin: &Subject, dir: &Path) -> Result<Subject> {
    traffic_server_with("2G", true, origin, dir)
}

fn traffic_server_with(size: &str, ram: bool, origin: &Subject, dir: &Path) -> Result<Subject> {
    let dir = dir.join("traffic-server");
    for part in ["etc", "run", "log", "cache"] {
        fs::create_dir_all(dir.join(part))?;
    }
    for entry in fs::read_dir("/etc/trafficserver")? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            fs::copy(&path, dir.join("etc").join(name))?;
        }
    }
    let root = dir.to_string_lossy();
    fs::write(dir.join("runroot.yaml"), LAYOUT.replace("@DIR@", &root))?;
    fs::write(
        dir.join("etc/storage.config"),
        format!("{root}/cache {size}\n"),
    )?;
    fs::write(
        dir.join("etc/remap.config"),
        format!("map / http://{}/\n", origin.address()),
    )?;
    let records = fs::read_to_string("/etc/trafficserver/records.config")?;
    let mut written = Ok(());
    let start = |run: Run, address: SocketAddr| {
        let own = RECORDS.replace("@PORT@", &address.port().to_string());
        let own = if ram {
            own
        } else {
            own.replace(
                "ram_cache.size INT 536870912",
                "ram_cache.size INT 33554432",
            )
        };
        written = fs::write(dir.join("etc/records.config"), format!("{records}{own}"));
        run.args(["traffic_server", &format!("--run-root={root}/runroot.yaml")])
    };
    let subject = Subject::start("Traffic Server", "", start, &dir);
    written?;
    subject
}
