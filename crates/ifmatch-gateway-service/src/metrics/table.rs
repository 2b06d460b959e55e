//! All metrics: their names, kinds and descriptions. Labels are stated where a metric is recorded;
//! [`catalogue`](super::catalogue) collects them by recording each once.

use metrics::{describe_counter, describe_gauge, describe_histogram};

/// Defines the constants with the names of metrics, by group, and `describe`, which adds all descriptions to the current recorder.
macro_rules! metrics {
    ($($(#[$doc:meta])* $group:ident { $($name:ident: $kind:ident $text:literal $help:literal)* })*) => {
        $($(#[$doc])* pub(crate) mod $group { $(pub(crate) const $name: &str = $text;)* })*

        /// Adds the descriptions to the current recorder.
        pub(crate) fn describe() {
            $($(describe!($kind, $group::$name, $help);)*)*
            ifmatch_register::metrics::describe();
        }
    };
}

macro_rules! describe {
    (counter, $name:path, $help:literal) => {
        describe_counter!($name, $help)
    };
    (gauge, $name:path, $help:literal) => {
        describe_gauge!($name, $help)
    };
    (histogram, $name:path, $help:literal) => {
        describe_histogram!($name, $help)
    };
}

metrics! {
    /// Of every server.
    gateway {
        REQUESTS: counter "ifmatch_requests_total"
            "Requests by method and status class; aborted: the client disconnected before the response."
        DURATION: histogram "ifmatch_request_duration_seconds"
            "Seconds from the head of a request to the end of its response."
        CREDENTIALS: counter "ifmatch_credentials_total"
            "Requests by the kind of their credentials; refused: 401 or 403."
        IN_FLIGHT: gauge "ifmatch_requests_in_flight"
            "Requests in progress."
        BODY_BYTES: counter "ifmatch_body_bytes_total"
            "Bytes of request bodies (in) and response bodies (out)."
        CONDITIONS: counter "ifmatch_conditions_total"
            "Conditions by outcome: met, not_modified (304), failed (412), or required (428) if a condition is missing."
        STORE_ERRORS: counter "ifmatch_store_errors_total"
            "Error responses of the store: unavailable (503, or a write of unknown outcome), full (507), unreadable (500)."
        CONNECTIONS: gauge "ifmatch_connections"
            "Open connections."
        CONNECTIONS_TOTAL: counter "ifmatch_connections_total"
            "Connections accepted."
        TIMEOUTS: counter "ifmatch_timeouts_total"
            "Clients that were too slow to send a head or a body, or to read a response (answer)."
        TURNED_AWAY: counter "ifmatch_turned_away_total"
            "Requests refused with 503, connections refused at a client's limit, and idle connections closed for new ones."
        WAITS: gauge "ifmatch_waits"
            "Reads waiting for a change (`Prefer: wait`)."
        DOCUMENTS: gauge "ifmatch_document_bytes"
            "Memory of bodies that operations hold in full, in bytes."
        CERTIFICATE_END: gauge "ifmatch_tls_certificate_not_after_seconds"
            "Unix time when the certificate in a file, or one of its chain, expires; 0 once another file replaced it."
        BUILD_INFO: gauge "ifmatch_build_info"
            "Always 1, with the version as a label."
    }

    /// Of the leases.
    leases {
        HELD: gauge "ifmatch_leases_held"
            "Active leases. Except on a folder, only those used since the start."
        OPERATIONS: counter "ifmatch_lease_operations_total"
            "Lease operations by outcome: acquired, renewed, changed, released, broken, expired, or refused because of a lease."
    }

    /// Of the cache.
    cache {
        REQUESTS: counter "ifmatch_cache_requests_total"
            "Requests by outcome and its reason. Each request has exactly one outcome."
        CONFIRMED: counter "ifmatch_cache_confirmed_total"
            "Stored responses confirmed by a 304, including in the background."
        STORED: counter "ifmatch_cache_stored_total"
            "Responses stored completely."
        NOT_STORED: counter "ifmatch_cache_not_stored_total"
            "Responses that were to be stored, but weren't, by reason."
        INVALIDATED: counter "ifmatch_cache_invalidated_total"
            "URIs with stored responses that were invalidated or purged, by cause."
        EVICTIONS: counter "ifmatch_cache_evictions_total"
            "URIs evicted because the cache was full."
        ANSWERED_BYTES: counter "ifmatch_cache_answered_bytes_total"
            "Bytes of bodies served from the cache."
        STORED_BYTES: gauge "ifmatch_cache_stored_bytes"
            "Size of stored responses in memory, in bytes."
        DISK_BYTES: gauge "ifmatch_cache_disk_bytes"
            "Size of bodies in --cache-dir, in bytes."
    }

    /// Of the purge log that several proxies share.
    purges {
        POSITION: gauge "ifmatch_purge_log_position"
            "Number of the last purge log segment that was applied."
        AGE: gauge "ifmatch_purge_log_age_seconds"
            "Seconds since the last complete read of the purge log began."
        CUT_OFF: gauge "ifmatch_purge_log_cut_off"
            "1 while the purge log is unreadable, so stored responses are revalidated; otherwise 0."
    }

    /// Of upstreams. The labels are routes and servers of the configuration, so their number is limited.
    upstreams {
        SECONDS: histogram "ifmatch_upstream_response_seconds"
            "Seconds until a server starts its response, including connecting."
        RESPONSES: counter "ifmatch_upstream_responses_total"
            "A server's responses, by status class."
        ERRORS: counter "ifmatch_upstream_errors_total"
            "Requests without a response from the server: unreachable (not processed), broken (invalid, or the connection closed), or timeout."
        REJECTED: counter "ifmatch_upstream_rejected_total"
            "Requests rejected because the upstream's servers and queue are full, or because all its servers hang."
        HEALTHY: gauge "ifmatch_upstream_healthy"
            "1, or 0 while a server fails its health checks or its circuit breaker is open."
        BREAKER_OPEN: gauge "ifmatch_upstream_breaker_open"
            "1 while a server's circuit breaker is open, so requests avoid the server; otherwise 0."
        IN_FLIGHT: gauge "ifmatch_upstream_requests_in_flight"
            "Requests in progress at a server, until the end of the response."
        WAITING: gauge "ifmatch_upstream_requests_waiting"
            "Requests waiting for a server of the upstream."
    }

    /// Of a register of `--register`, or of `--data` beside an object store.
    register {
        SECONDS: histogram "ifmatch_register_seconds"
            "Seconds of the register's calls by operation and outcome: done, conflict, unavailable (nothing changed), ambiguous (an unacknowledged swap), full, unreadable."
        CLOCK_ERROR: gauge "ifmatch_register_clock_error_seconds"
            "Uncertainty of the register engine's clock; infinite if the engine keeps no time, or its time is unknown."
        EPOCH: gauge "ifmatch_register_epoch"
            "Failovers of the register that may have lost acknowledged swaps."
        LAST_SWAP: gauge "ifmatch_register_last_swap_timestamp_seconds"
            "Unix time of this process's last successful swap."
    }
}
