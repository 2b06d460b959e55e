//! The requirement that writes are conditional: 428 (RFC 6585 §3).

use http::Method;

use crate::precondition::Preconditions;

/// The methods that require a precondition.
///
/// ```
/// use http::Method;
/// use ifmatch_core::policy::RequirePreconditions;
/// use ifmatch_core::precondition::Preconditions;
///
/// let policy = RequirePreconditions::for_writes();
/// assert!(policy.refuses(&Method::PUT, &Preconditions::default()));
/// assert!(!policy.refuses(&Method::GET, &Preconditions::default()));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequirePreconditions {
    methods: Vec<Method>,
}

impl RequirePreconditions {
    /// Requires no preconditions. This is the default.
    pub const fn none() -> Self {
        Self {
            methods: Vec::new(),
        }
    }

    /// Requires preconditions for PUT, PATCH and DELETE, which replace or delete existing data. POST usually adds data.
    ///
    /// ```
    /// # use http::Method;
    /// # use ifmatch_core::policy::RequirePreconditions;
    /// # use ifmatch_core::precondition::Preconditions;
    /// assert!(!RequirePreconditions::for_writes().refuses(&Method::POST, &Preconditions::default()));
    /// ```
    pub fn for_writes() -> Self {
        Self::for_methods([Method::PUT, Method::PATCH, Method::DELETE])
    }

    /// Requires preconditions for these methods. Ignores safe methods, including QUERY.
    ///
    /// ```
    /// # use http::Method;
    /// # use ifmatch_core::policy::RequirePreconditions;
    /// # use ifmatch_core::precondition::Preconditions;
    /// let policy = RequirePreconditions::for_methods([Method::POST, Method::QUERY]);
    /// assert!(policy.refuses(&Method::POST, &Preconditions::default()));
    /// assert!(!policy.refuses(&Method::QUERY, &Preconditions::default()));
    /// ```
    pub fn for_methods(methods: impl IntoIterator<Item = Method>) -> Self {
        Self {
            methods: methods
                .into_iter()
                .filter(|method| !method.is_safe())
                .collect(),
        }
    }

    /// Returns `true` if the response must be 428: the method requires a precondition, and there is none that
    /// [can fail](Preconditions::has_write_condition).
    ///
    /// ```
    /// # use http::Method;
    /// # use ifmatch_core::policy::RequirePreconditions;
    /// # use ifmatch_core::precondition::Preconditions;
    /// # use ifmatch_core::tag::TagList;
    /// let create = Preconditions { if_none_match: Some(TagList::Any), ..Preconditions::default() };
    /// assert!(!RequirePreconditions::for_writes().refuses(&Method::PUT, &create));
    /// ```
    pub fn refuses(&self, method: &Method, preconditions: &Preconditions) -> bool {
        self.methods.contains(method) && !preconditions.has_write_condition()
    }
}
