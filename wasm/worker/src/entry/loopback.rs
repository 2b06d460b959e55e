//! Detection of requests to a local host name.

use std::net::Ipv4Addr;

/// Returns `true` if the host of a URL is this machine: `localhost`, a subdomain of it, or a loopback address.
pub(super) fn is_loopback(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if let Some(address) = authority.strip_prefix('[') {
        return address.split(']').next() == Some("::1");
    }
    let host = authority.split(':').next().unwrap_or_default();
    let is_name = host == "localhost" || host.ends_with(".localhost");
    is_name
        || host
            .parse()
            .is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for (url, expected) in [
            ("http://127.0.0.1:8787/docs/a", true),
            ("http://127.8.0.1/", true),
            ("http://localhost", true),
            ("http://account.localhost:80/x", true),
            ("http://[::1]:8787/", true),
            ("https://ifmatch.example.workers.dev/docs", false),
            ("http://10.0.0.1/127.0.0.1", false),
            ("http://127.0.0.1.example.com/", false),
            ("http://localhost.example.com/", false),
            ("http://mylocalhost/", false),
            ("http://[::2]/", false),
            ("/docs", false),
        ] {
            assert_eq!(is_loopback(url), expected, "{url}");
        }
    }
}
