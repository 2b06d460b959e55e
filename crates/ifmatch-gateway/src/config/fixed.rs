//! The settings that a reload does not change, which the log names if they differ.

use super::proxy_settings::ProxySettings;
use super::settings::Settings;

/// The values of these settings, as text, by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fixed(Vec<(&'static str, String)>);

/// Returns fields with their values.
macro_rules! fields {
    ($settings:ident: $($field:ident)+) => { vec![$((stringify!($field), format!("{:?}", $settings.$field))),+] };
}

impl Fixed {
    /// Returns those of all servers.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self(
            fields!(settings: console data store register register_may_lose require_conditions s3_host cors_origin cache
            cache_body_size cache_dir cache_disk max_body_size max_header_size max_connections max_connections_per_client
            max_requests max_requests_per_client max_waits head_timeout body_timeout keep_alive shutdown_delay
            shutdown_grace log log_format access_log access_log_format),
        )
    }

    /// Adds those of the proxy.
    pub(crate) fn with_proxy(self, settings: &ProxySettings) -> Self {
        let proxy = fields!(settings: answer_timeout trust_forwarded guard_writes guess_lifetimes default_ttl
            negative_ttl stale_if_unreachable stale_if_error stale_while_revalidate
            ignore_client_cache_control share_cookies sort_query drop_query keep_query purge_register purge_bound purge_peer);
        Self([self.0, proxy].concat())
    }

    /// Returns the flags whose values differ from those of `other`.
    pub(crate) fn changed(&self, other: &Self) -> Vec<String> {
        let pairs = self.0.iter().zip(&other.0).filter(|(one, other)| one != other);
        pairs.map(|((field, _), _)| format!("--{}", field.replace('_', "-"))).collect()
    }

    /// Returns the fields.
    #[cfg(test)]
    pub(crate) fn fields(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(field, _)| *field)
    }
}
