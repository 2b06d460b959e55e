//! What `ifmatch serve` says on stdout once it is ready.

use std::io::{self, IsTerminal, Write, stdout};
use std::net::SocketAddr;

use crate::config::{Config, Place};

/// Prints the banner; in colour only on a terminal. A closed stdout is no reason to stop.
pub(crate) fn print(config: &Config, address: SocketAddr) {
    let out = stdout();
    let colours = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let written = write(&mut out.lock(), config, address, colours);
    if let Err(error) = written {
        tracing::debug!(%error, "the banner could not be printed");
    }
}

fn write(out: &mut impl Write, config: &Config, address: SocketAddr, colours: bool) -> io::Result<()> {
    let (bold, dim, plain) = if colours { ("\u{1b}[1m", "\u{1b}[2m", "\u{1b}[0m") } else { ("", "", "") };
    let scheme = if config.tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{address}");
    writeln!(out, "{bold}ifmatch{plain} {}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "{dim}blobs in{plain} {}", place(&config.place))?;
    if config.access.is_open() {
        writeln!(out, "{dim}open to every program on this machine; set --write-token-file to ask for a token{plain}")?;
    }
    writeln!(out, "listening on {url}")?;
    writeln!(out)?;
    writeln!(out, "{dim}try{plain}  {}", example(config, address, &url))?;
    out.flush()
}

fn place(place: &Place) -> String {
    match place {
        Place::Folder(folder) => folder.display().to_string(),
        Place::Store { url, register: None } => url.clone(),
        Place::Store { url, register: Some(folder) } => format!("{url}, known in {}", folder.display()),
    }
}

/// A line to paste into a shell. An address that stands for all of this machine's is no address to connect to.
fn example(config: &Config, address: SocketAddr, url: &str) -> String {
    let url = if address.ip().is_unspecified() {
        url.replace(&address.ip().to_string(), "localhost")
    } else {
        url.to_owned()
    };
    let token = if config.access.is_open() { "" } else { " -H 'Authorization: Bearer TOKEN'" };
    let insecure = if config.tls.is_some() { " -k" } else { "" };
    format!("curl -i{insecure}{token} -T README.md {url}/docs/readme.md")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn banner(settings: Settings, colours: bool) -> String {
        let config = Config::from_settings(settings).unwrap();
        let mut out = Vec::new();
        write(&mut out, &config, SocketAddr::from(([127, 0, 0, 1], 4321)), colours).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_address_has_a_line_of_its_own() {
        let settings = Settings { data: Some("./data".into()), ..Settings::default() };
        let text = banner(settings.clone(), false);
        assert!(text.lines().any(|line| line == "listening on http://127.0.0.1:4321"), "{text}");
        assert!(!text.contains('\u{1b}'));
        let text = banner(settings, true);
        assert!(text.lines().any(|line| line == "listening on http://127.0.0.1:4321"), "{text}");
    }

    #[test]
    fn no_token_is_ever_printed() {
        let write_token = vec!["hunter2hunter2".to_owned()];
        let settings = Settings { data: Some("./data".into()), write_token, ..Settings::default() };
        let text = banner(settings, false);
        assert!(text.contains("Bearer TOKEN") && !text.contains("hunter2"), "{text}");
    }
}
