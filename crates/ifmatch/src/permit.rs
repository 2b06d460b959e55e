//! The permit that the inner service receives with a write, and the version that the write replaces.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ifmatch_core::EntityTag;
use ifmatch_core::command::Grant;
use ifmatch_core::date::Timestamp;
use ifmatch_core::precondition::Preconditions;
use ifmatch_core::record::State;
use ifmatch_core::tag::TagList;

use crate::PreconditionFailed;

/// Permit to write, an extension of the request that the inner service receives.
///
/// A handler can pass it on to its own store: the fencing token if the store rejects late writers, or the current tag
/// if the store supports conditional writes.
///
/// ```
/// use http::Request;
/// use ifmatch::Permit;
///
/// fn handle(request: &Request<()>) -> Option<u64> {
///     request.extensions().get::<Permit>().map(Permit::fencing_token)
/// }
/// # assert_eq!(handle(&Request::new(())), None);
/// ```
#[derive(Clone, Debug)]
pub struct Permit {
    fencing_token: u64,
    deadline: Timestamp,
    current: State,
    lease_token: Option<u64>,
    expected: ExpectedVersion,
    /// Shared by the clones in the handler and the layer.
    is_version_taken: Arc<AtomicBool>,
}

impl Permit {
    pub(crate) fn new(grant: &Grant, deadline: Timestamp, expected: ExpectedVersion) -> Self {
        let lease_token = grant.lease.map(|lease| lease.token().get());
        let (fencing_token, current) = (grant.token.revision.get(), grant.current.clone());
        Self {
            fencing_token,
            deadline,
            current,
            lease_token,
            expected,
            is_version_taken: Arc::default(),
        }
    }

    /// Returns the version that this write may replace, for a store that can compare it.
    ///
    /// ```
    /// use http::Request;
    /// use ifmatch::{ExpectedVersion, Permit};
    ///
    /// fn expected(request: &Request<()>) -> ExpectedVersion {
    ///     request.extensions().get::<Permit>().map_or(ExpectedVersion::Any, Permit::expected_version)
    /// }
    /// # assert_eq!(expected(&Request::new(())), ExpectedVersion::Any);
    /// ```
    pub fn expected_version(&self) -> ExpectedVersion {
        self.is_version_taken.store(true, Ordering::Release);
        self.expected.clone()
    }

    /// Returns `true` once the handler has asked for the version.
    pub(crate) fn is_version_taken(&self) -> bool {
        self.is_version_taken.load(Ordering::Acquire)
    }

    /// Returns a number larger than any earlier permit's for this resource, as far as the register remembers.
    ///
    /// With a durable register, such as redb, it never decreases. An in-memory register forgets permits on a restart:
    /// its numbers start at the time of day, so they decrease if the clock was set back. A store that rejects smaller
    /// tokens then rejects every write until the clock has caught up.
    pub fn fencing_token(&self) -> u64 {
        self.fencing_token
    }

    /// Returns the fencing token of the lease presented with the request, or `None` without a lease.
    ///
    /// It's the same for all writes of one holder, and larger than any earlier lease's, as far as the register
    /// remembers; see [`fencing_token`](Self::fencing_token). If the lease protects other data too, pass the token to
    /// that data's store.
    ///
    /// ```
    /// use http::Request;
    /// use ifmatch::Permit;
    ///
    /// fn holder(request: &Request<()>) -> Option<u64> {
    ///     request.extensions().get::<Permit>().and_then(Permit::lease_token)
    /// }
    /// # assert_eq!(holder(&Request::new(())), None);
    /// ```
    pub fn lease_token(&self) -> Option<u64> {
        self.lease_token
    }

    /// Returns the time at which the handler will be cancelled, by the layer's [`Clock`](crate::Clock):
    /// `SystemClock.now().until(permit.deadline())` is the time left. It may get more while the request's body arrives.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Returns the state that the conditions were evaluated on, or [`State::Unknown`] if the request had no conditions
    /// and no earlier request has seen the resource.
    pub fn current(&self) -> &State {
        &self.current
    }

    /// Returns the current representations' tags, none if the resource is absent, unknown or untagged.
    pub fn current_tags(&self) -> &[EntityTag] {
        self.current.version().map_or(&[], |version| version.tags())
    }
}

/// The version that a write may replace, for `UPDATE … WHERE version = $1`.
///
/// Compare it in the statement that writes, not before. Then no update is lost, even if something else writes to the
/// row without the layer. Return [`PreconditionFailed`] if the row has another version.
///
/// With the feature `axum`, it is an extractor:
///
/// ```
/// use ifmatch::{EntityTag, ExpectedVersion, PreconditionFailed};
///
/// # async fn execute(_: &str, _: &str, _: Option<i64>) -> Option<i64> { None }
/// async fn save(expected: ExpectedVersion, text: String) -> Result<EntityTag, PreconditionFailed> {
///     let expected: Option<i64> = expected.of_row()?;
///     let update = "UPDATE notes SET text = ?, version = version + 1 WHERE version = coalesce(?, version) RETURNING version";
///     let version = execute(update, &text, expected).await.ok_or(PreconditionFailed)?;
///     Ok(EntityTag::from(version))
/// }
/// # #[cfg(feature = "axum")]
/// # let _: axum::routing::MethodRouter = axum::routing::put(save);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Any version: the write has no condition, or the resource has no tag.
    Any,
    /// No version: the resource must not exist yet.
    Absent,
    /// The version with this tag, as the service stated it in a response. For `If-Match: *`, the current version.
    Tag(EntityTag),
}

impl ExpectedVersion {
    /// Returns the version to compare with an existing row's, or `None` for any.
    ///
    /// ```
    /// use ifmatch::{EntityTag, ExpectedVersion, PreconditionFailed};
    ///
    /// assert_eq!(ExpectedVersion::Tag(EntityTag::from(7)).of_row(), Ok(Some(7)));
    /// assert_eq!(ExpectedVersion::Tag(EntityTag::strong("+7").unwrap()).of_row::<i64>(), Err(PreconditionFailed));
    /// assert_eq!(ExpectedVersion::Any.of_row::<i64>(), Ok(None));
    /// assert_eq!(ExpectedVersion::Absent.of_row::<i64>(), Err(PreconditionFailed));
    /// ```
    ///
    /// # Errors
    /// Returns an error if no existing row can match: the row must not exist, or the tag doesn't hold such a version.
    pub fn of_row<V: FromStr + ToString>(&self) -> Result<Option<V>, PreconditionFailed> {
        match self {
            Self::Any => Ok(None),
            Self::Absent => Err(PreconditionFailed),
            Self::Tag(tag) => {
                let text = version_in(tag).ok_or(PreconditionFailed)?;
                // `"+4"` is another tag than `"4"`.
                let version = text
                    .parse()
                    .ok()
                    .filter(|version: &V| version.to_string() == text);
                version.map(Some).ok_or(PreconditionFailed)
            }
        }
    }

    /// Returns the named version, for a PUT that creates or replaces: `None` for `Any` and `Absent`, which have statements of
    /// their own.
    ///
    /// ```
    /// use ifmatch::{EntityTag, ExpectedVersion, PreconditionFailed};
    ///
    /// # async fn execute(_: &str, _: &str, _: &str, _: Option<i64>) -> Option<i64> { None }
    /// // `random()`: a version never recurs, not even after a deletion.
    /// async fn save(expected: ExpectedVersion, name: &str, text: &str) -> Result<EntityTag, PreconditionFailed> {
    ///     let statement = match expected {
    ///         ExpectedVersion::Absent => {
    ///             "INSERT INTO drafts VALUES (?1, ?2, random()) ON CONFLICT DO NOTHING RETURNING version"
    ///         }
    ///         ExpectedVersion::Tag(_) => {
    ///             "UPDATE drafts SET text = ?2, version = random() WHERE name = ?1 AND version = ?3 RETURNING version"
    ///         }
    ///         ExpectedVersion::Any => {
    ///             "INSERT INTO drafts VALUES (?1, ?2, random()) ON CONFLICT (name) \
    ///              DO UPDATE SET text = excluded.text, version = excluded.version RETURNING version"
    ///         }
    ///     };
    ///     let version = execute(statement, name, text, expected.version()?).await.ok_or(PreconditionFailed)?;
    ///     Ok(EntityTag::from(version))
    /// }
    /// assert_eq!(ExpectedVersion::Absent.version::<i64>(), Ok(None));
    /// assert_eq!(ExpectedVersion::Tag(EntityTag::from(7)).version(), Ok(Some(7)));
    /// ```
    ///
    /// # Errors
    /// Returns an error if the tag doesn't hold such a version, so no row can match.
    pub fn version<V: FromStr + ToString>(&self) -> Result<Option<V>, PreconditionFailed> {
        match self {
            Self::Absent => Ok(None),
            _ => self.of_row(),
        }
    }

    /// Compares the expected version with the current row's, which is `None` if there is no row.
    ///
    /// Use this only where nothing can write between the check and the write: in a transaction that has locked the row
    /// or the table (`BEGIN IMMEDIATE` in SQLite), or before a write to memory without an `await`. Otherwise, compare
    /// in the statement.
    ///
    /// ```
    /// use std::collections::HashMap;
    ///
    /// use ifmatch::{EntityTag, ExpectedVersion, PreconditionFailed};
    ///
    /// type Drafts = HashMap<String, (i64, String)>;
    ///
    /// fn save(
    ///     drafts: &mut Drafts,
    ///     expected: &ExpectedVersion,
    ///     name: &str,
    ///     text: &str,
    ///     next: i64,
    /// ) -> Result<EntityTag, PreconditionFailed> {
    ///     expected.check(drafts.get(name).map(|(version, _)| version))?;
    ///     drafts.insert(name.to_owned(), (next, text.to_owned()));
    ///     Ok(EntityTag::from(next))
    /// }
    /// let mut drafts = Drafts::new();
    /// let tag = save(&mut drafts, &ExpectedVersion::Absent, "a", "one", 1).unwrap();
    /// assert!(save(&mut drafts, &ExpectedVersion::Absent, "a", "two", 2).is_err());
    /// assert!(save(&mut drafts, &ExpectedVersion::Tag(tag), "a", "two", 2).is_ok());
    /// ```
    ///
    /// # Errors
    /// Returns an error if the write must not happen.
    pub fn check(&self, current: Option<impl ToString>) -> Result<(), PreconditionFailed> {
        let holds = match self {
            Self::Any => true,
            Self::Absent => current.is_none(),
            Self::Tag(tag) => current
                .is_some_and(|current| version_in(tag).is_some_and(|it| it == current.to_string())),
        };
        if holds {
            Ok(())
        } else {
            Err(PreconditionFailed)
        }
    }

    /// Returns the version that the handler can compare in place of the layer: the conditions consist of a strong tag in
    /// `If-Match`, or of `If-None-Match: *`.
    pub(crate) fn named_by(conditions: &Preconditions) -> Option<Self> {
        match (&conditions.if_match, &conditions.if_none_match) {
            (Some(TagList::Tags(tags)), None) => match &tags[..] {
                [tag] if !tag.is_weak() => Some(Self::Tag(tag.clone())),
                _ => None,
            },
            (None, Some(TagList::Any)) if conditions.if_unmodified_since.is_none() => {
                Some(Self::Absent)
            }
            _ => None,
        }
    }

    /// Returns the version that the layer has compared with the conditions.
    pub(crate) fn compared(conditions: &Preconditions, current: &State) -> Self {
        let version = match current {
            _ if conditions.is_empty() => return Self::Any,
            State::Unknown => return Self::Any,
            State::Absent => return Self::Absent,
            State::Present(version) => version,
        };
        let named = match &conditions.if_match {
            Some(TagList::Tags(tags)) => tags
                .iter()
                .find(|tag| version.tags().iter().any(|its| its.strong_eq(tag))),
            _ => None,
        };
        named
            .or(version.tags().first())
            .map_or(Self::Any, |tag| Self::Tag(tag.clone()))
    }
}

/// Returns the text of a version that a tag holds, or `None` if the tag is weak or not text.
fn version_in(tag: &EntityTag) -> Option<&str> {
    tag.opaque_str().filter(|_| !tag.is_weak())
}
