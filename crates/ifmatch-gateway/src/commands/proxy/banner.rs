//! The banner of `ifmatch proxy`.

use std::io::{self, Write};

use crate::cli::terminal::{self, Style};
use crate::commands::listen::Bound;
use crate::config::proxy::ProxyConfig;

/// Prints the banner.
pub(super) fn print(config: &ProxyConfig, addresses: &Bound) {
    terminal::print_banner(config.server.log.format, |out, style| write(out, style, config, addresses));
}

fn write(out: &mut dyn Write, style: Style, config: &ProxyConfig, addresses: &Bound) -> io::Result<()> {
    let Style { dim, plain, .. } = style;
    for route in &config.routes {
        writeln!(out, "{dim}{} to{plain} {}", route.pattern, route.destination())?;
    }
    if config.server.access.has_no_tokens() && !config.server.access.is_open() {
        writeln!(out, "{dim}/-/metrics and /-/cache are disabled; set --write-token-file to enable them{plain}")?;
    }
    addresses.print(out, config.server.scheme())
}
