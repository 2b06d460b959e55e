//! The addresses of the listeners: two cannot have one port.

use std::net::SocketAddr;

use super::address::ListenAddress;
use crate::error::Error;

/// Checks that the addresses of these listeners, each with its flag, can all be bound.
///
/// # Errors
/// Names two addresses that include the same one.
pub(crate) fn check(listeners: &[(&'static str, &[ListenAddress])]) -> Result<(), Error> {
    let all = listeners.iter().flat_map(|(flag, list)| list.iter().map(move |address| (*flag, *list, *address)));
    let all: Vec<_> = all.collect();
    for (at, (flag, list, address)) in all.iter().enumerate() {
        for (other_flag, other_list, other) in &all[..at] {
            if overlap((list, *address), (other_list, *other)) {
                return Err(Error::usage(format!(
                    "{flag} {address} and {other_flag} {other} are on one port: give each listener a port of its own"
                )));
            }
        }
    }
    Ok(())
}

/// Returns `true` if two addresses, each with the list that it belongs to, have an address and port in common.
fn overlap(
    (list, address): (&[ListenAddress], ListenAddress),
    (other_list, other): (&[ListenAddress], ListenAddress),
) -> bool {
    let pairs = address.addresses().flat_map(|one| other.addresses().map(move |other| (one, other)));
    pairs.into_iter().any(|(one, other)| {
        one.port() != 0
            && one.port() == other.port()
            && (includes(list, one, other) || includes(other_list, other, one))
    })
}

/// Returns `true` if an address of this list includes another one with the same port. `[::]` includes those of IPv4, unless its list
/// has one with the same port.
fn includes(list: &[ListenAddress], address: SocketAddr, other: SocketAddr) -> bool {
    let is_both = || {
        let mut of_list = list.iter().flat_map(|listed| listed.addresses());
        !of_list.any(|listed| listed.is_ipv4() && listed.port() == address.port())
    };
    address.ip() == other.ip()
        || address.ip().is_unspecified() && (address.is_ipv4() == other.is_ipv4() || address.is_ipv6() && is_both())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_listeners_cannot_have_one_port() {
        let parse = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<ListenAddress>>();
        for (site, admin, expected) in [
            (&["127.0.0.1:80"][..], &["127.0.0.1:80"][..], true),
            (&["0.0.0.0:80"], &["127.0.0.1:80"], true),
            (&["127.0.0.1:80"], &["0.0.0.0:80"], true),
            (&["[::]:80"], &["127.0.0.1:80"], true),
            (&["[::]:80"], &["[::1]:80"], true),
            (&["80"], &["[::1]:80"], true),
            (&["[::]:80", "10.0.0.1:80"], &["127.0.0.1:80"], false),
            (&["[::]:80", "10.0.0.1:80"], &["10.0.0.1:80"], true),
            (&["[::]:80", "0.0.0.0:80"], &["81"], false),
            (&["127.0.0.1:80", "127.0.0.1:80"], &[], true),
            (&["0.0.0.0:80", "127.0.0.1:80"], &[], true),
            (&["127.0.0.1:80", "127.0.0.2:80"], &[], false),
            (&["127.0.0.1:80"], &["[::1]:80"], false),
            (&["127.0.0.1:0"], &["127.0.0.1:0"], false),
        ] {
            let (site, admin) = (parse(site), parse(admin));
            let found = check(&[("--listen", &site), ("--admin-listen", &admin)]);
            assert_eq!(found.is_err(), expected, "{site:?} {admin:?}");
            if let Err(error) = found {
                assert!(error.to_string().contains("--listen"), "{error}");
            }
        }
    }
}
