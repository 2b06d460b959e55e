//! Buckets named by the host of a request (virtual-host style).

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// The hosts of which a bucket may be the first label. Requests to other hosts name the bucket in their path.
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(names: &[String]) -> Self {
        Self(names.iter().map(|name| format!(".{}", name.trim_matches('.').to_ascii_lowercase())).collect())
    }
}

impl S3Host for Hosts {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
        let bucket = self.0.iter().find_map(|suffix| name.strip_suffix(suffix.as_str()));
        let found = VirtualHost::new(host);
        Ok(match bucket {
            Some(bucket) => found.with_bucket(bucket.to_owned()),
            None => found,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_what_precedes_the_name_of_the_service() {
        let hosts = Hosts::new(&["s3.example.com".into(), "S3.internal".into()]);
        let bucket = |host: &str| hosts.parse_host_header(host).unwrap().bucket().map(ToOwned::to_owned);
        for (host, expected) in [
            ("docs.s3.example.com", Some("docs")),
            ("Docs.S3.Example.com:8000", Some("docs")),
            ("a.b.s3.internal", Some("a.b")),
            ("s3.example.com", None),
            ("docs3.example.com", None),
            ("docs.s3.example.com.evil.example", None),
            ("localhost:10003", None),
        ] {
            assert_eq!(bucket(host).as_deref(), expected, "{host}");
        }
    }
}
