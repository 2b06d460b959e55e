//! The banner of `ifmatch serve`.

use std::io::{self, Write};
use std::net::SocketAddr;

use ifmatch_blob::accounts::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};
use ifmatch_gateway_commands::terminal::{self, TextStyle};
use ifmatch_gateway_config::address::ListenAddress;
use ifmatch_gateway_config::settings::Settings;
use ifmatch_gateway_config::shown_url::without_secrets;
use ifmatch_gateway_config::{Config, Records, Storage, TABLES};

use crate::commands::listen::BoundAddresses;

/// The addresses of the listeners.
pub(super) struct ServedAddresses {
    /// Addresses for blobs, and others.
    pub(super) site: BoundAddresses,
    /// Address for tables, if they are served.
    pub(super) tables: Option<SocketAddr>,
    /// Address for S3 clients, if they are served.
    pub(super) s3: Option<SocketAddr>,
}

/// Prints the banner.
pub(super) fn print(config: &Config, addresses: &ServedAddresses) {
    terminal::print_banner(config.server.settings.log_format, |out, style| {
        write(out, style, config, addresses)
    });
}

fn write(
    out: &mut dyn Write,
    style: TextStyle,
    config: &Config,
    addresses: &ServedAddresses,
) -> io::Result<()> {
    let TextStyle { dim, plain, .. } = style;
    let scheme = config.server.scheme();
    writeln!(out, "{dim}blobs in{plain} {}", location(&config.storage))?;
    if config.server.access.is_open() {
        writeln!(
            out,
            "{dim}open to all programs on this machine; set --write-token-file to require a token{plain}"
        )?;
    } else if config.server.access.has_no_tokens() {
        writeln!(
            out,
            "{dim}accepts signed requests only; set --write-token-file to use it without an Azure SDK{plain}"
        )?;
    }
    addresses.site.print(out, scheme)?;
    if let Some(tables) = addresses.tables {
        writeln!(out, "tables on {scheme}://{tables}")?;
    }
    if let Some(s3) = addresses.s3 {
        writeln!(out, "S3 on {scheme}://{s3}")?;
    }
    if let Some(account) = config.accounts.iter().next() {
        writeln!(
            out,
            "{dim}Azure SDKs{plain}  {}",
            connection(account.name(), config, addresses)
        )?;
    }
    writeln!(out)?;
    writeln!(
        out,
        "{dim}try{plain}  {}",
        example(config, addresses.site.first(), scheme)
    )
}

/// Returns the connection string for the default account, with its well-known key or without a key.
fn connection(name: &str, config: &Config, addresses: &ServedAddresses) -> String {
    let scheme = config.server.scheme();
    let blobs = addresses.site.first();
    let is_default = Settings::default().listen == [ListenAddress::One(blobs)]
        && addresses.tables == Some(TABLES);
    if name == DEVELOPMENT_ACCOUNT && config.has_published_key() && is_default && scheme == "http" {
        return "UseDevelopmentStorage=true".to_owned();
    }
    let key = if config.has_published_key() {
        DEVELOPMENT_KEY
    } else {
        "KEY"
    };
    let tables = addresses
        .tables
        .map(|tables| format!("TableEndpoint={scheme}://{}/{name};", reachable(tables)));
    format!(
        "AccountName={name};AccountKey={key};BlobEndpoint={scheme}://{}/{name};{}",
        reachable(blobs),
        tables.unwrap_or_default()
    )
}

/// Returns an address to connect to, which is localhost for the unspecified address.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    }
}

/// Describes a storage, without secrets.
pub(super) fn location(storage: &Storage) -> String {
    match storage {
        Storage::Folder(folder) => folder.display().to_string(),
        Storage::Bucket { url, register } => format!("{}, index {register}", without_secrets(url)),
        Storage::Store { url, records } => {
            let url = without_secrets(url);
            match records {
                Records::Memory => url,
                Records::Folder(folder) => format!("{url}, register in {}", folder.display()),
                Records::Register(register) => format!("{url}, register {register}"),
            }
        }
    }
}

/// Returns an example command for a shell.
fn example(config: &Config, address: SocketAddr, scheme: &str) -> String {
    let url = format!("{scheme}://{}", reachable(address));
    let token = if config.server.access.is_open() {
        ""
    } else {
        " -H 'Authorization: Bearer TOKEN'"
    };
    let insecure = if config.server.tls.is_empty() {
        ""
    } else {
        " -k"
    };
    format!("curl -i{insecure}{token} -X PUT -d hello {url}/docs/hello.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner(settings: Settings, colours: bool) -> String {
        let config = Config::from_settings(settings).unwrap();
        let mut out = Vec::new();
        let addresses = ServedAddresses {
            site: BoundAddresses::one(local(4321)),
            tables: config
                .listen_tables
                .address
                .and_then(|at| at.addresses().next()),
            s3: None,
        };
        write(&mut out, TextStyle::new(colours), &config, &addresses).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn local(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    #[test]
    fn the_address_is_on_a_separate_line() {
        let settings = Settings {
            data: Some("./data".into()),
            ..Settings::default()
        };
        let text = banner(settings.clone(), false);
        assert!(
            text.lines()
                .any(|line| line == "listening on http://127.0.0.1:4321"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'));
        let text = banner(settings, true);
        assert!(
            text.lines()
                .any(|line| line == "listening on http://127.0.0.1:4321"),
            "{text}"
        );
    }

    #[test]
    fn no_token_is_ever_printed() {
        let write_token = vec!["hunter2hunter2".to_owned()];
        let settings = Settings {
            data: Some("./data".into()),
            write_token,
            ..Settings::default()
        };
        let text = banner(settings, false);
        assert!(
            text.contains("Bearer TOKEN") && !text.contains("hunter2"),
            "{text}"
        );
        let settings =
            "store = 's3://me:hunter2@bucket/x?key=hunter2'\nregister = 'redis://me:hunter2@host'";
        let text = banner(Settings::from_toml(settings).unwrap(), false);
        assert!(
            text.contains("s3://(hidden)@bucket/x?(hidden), register redis://(hidden)@host"),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn azure_clients_get_a_connection_string() {
        let config = |accounts: &str| {
            let settings =
                Settings::from_toml(&format!("store = 'memory://'\n{accounts}")).unwrap();
            Config::from_settings(settings).unwrap()
        };
        let connect = |accounts, blobs, tables| {
            connection(
                DEVELOPMENT_ACCOUNT,
                &config(accounts),
                &ServedAddresses {
                    site: BoundAddresses::one(blobs),
                    tables,
                    s3: None,
                },
            )
        };
        assert_eq!(
            connect("", local(10_000), Some(local(10_002))),
            "UseDevelopmentStorage=true"
        );
        let other = connect("", local(1), Some(local(10_002)));
        assert!(
            other.contains("BlobEndpoint=http://127.0.0.1:1/devstoreaccount1;"),
            "{other}"
        );
        assert!(
            other.contains("TableEndpoint=http://127.0.0.1:10002/devstoreaccount1;"),
            "{other}"
        );
        assert!(
            other.contains(&format!("AccountKey={DEVELOPMENT_KEY};")),
            "{other}"
        );
        let all = connect("", ([0, 0, 0, 0], 10_000).into(), None);
        assert!(
            all.contains("http://localhost:10000/") && !all.contains("Table"),
            "{all}"
        );
        let own = "accounts = [{ name = 'devstoreaccount1', key = 'c2VjcmV0' }]";
        let own = connect(own, local(10_000), Some(local(10_002)));
        assert!(own.contains("AccountKey=KEY;"), "{own}");

        let accounts = vec!["photos:aHVudGVyMg==".parse().unwrap()];
        let text = banner(
            Settings {
                data: Some("./data".into()),
                accounts,
                ..Settings::default()
            },
            false,
        );
        assert!(
            text.contains("AccountName=photos;AccountKey=KEY;"),
            "{text}"
        );
        assert!(
            text.contains("signed requests only") && !text.contains("aHVudGVyMg"),
            "{text}"
        );
    }
}
