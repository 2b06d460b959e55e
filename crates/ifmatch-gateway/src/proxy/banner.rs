//! What `ifmatch proxy` says on stdout once it is ready.

use std::io::{self, Write};
use std::net::SocketAddr;

use super::config::ProxyConfig;
use crate::banner;

/// Prints the banner.
pub(super) fn print(config: &ProxyConfig, address: SocketAddr) {
    banner::say(|out, style| write(out, style, config, address));
}

fn write(out: &mut dyn Write, style: banner::Style, config: &ProxyConfig, address: SocketAddr) -> io::Result<()> {
    let banner::Style { dim, plain, .. } = style;
    for route in &config.routes {
        writeln!(out, "{dim}{} to{plain} {}", route.of, route.upstream.join(", "))?;
    }
    if config.server.access.has_no_tokens() && !config.server.access.is_open() {
        writeln!(out, "{dim}closed to all: /-/metrics and /-/cache; set --write-token-file to open them{plain}")?;
    }
    writeln!(out, "listening on {}://{address}", config.server.scheme())
}
