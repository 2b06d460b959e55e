//! One form for the queries of requests, so requests that differ only in irrelevant parameters share a response.

use std::borrow::Cow;

use super::fields::percent_decoded;

/// Rules for the query of a request. The request is forwarded with the resulting query.
///
/// ```
/// use ifmatch_cache::policy::query::{QueryFilter, QueryRules};
///
/// let drop = QueryFilter::Drop(vec!["utm_*".to_owned(), "fbclid".to_owned()]);
/// let rules = QueryRules { sort: true, filter: drop };
/// assert_eq!(rules.apply("/shop?size=2&utm_source=x&colour=red"), "/shop?colour=red&size=2");
/// assert_eq!(rules.apply("/shop?fbclid=1"), "/shop");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryRules {
    /// Sort the parameters by name. Parameters with the same name keep their order.
    pub sort: bool,
    /// The parameters to remove.
    pub filter: QueryFilter,
}

/// The parameters of a query to remove. Names are compared after decoding; one that ends in `*` matches a prefix.
///
/// ```
/// use ifmatch_cache::policy::query::{QueryFilter, QueryRules};
///
/// let rules = QueryRules { filter: QueryFilter::Keep(vec!["id".to_owned()]), ..QueryRules::default() };
/// assert_eq!(rules.apply("/?session=7&i%64=1&id=2"), "/?i%64=1&id=2");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueryFilter {
    /// None.
    #[default]
    None,
    /// These.
    Drop(Vec<String>),
    /// All but these.
    Keep(Vec<String>),
}

impl QueryRules {
    /// Returns `true` if the rules change any query.
    pub fn is_active(&self) -> bool {
        *self != Self::default()
    }

    /// Applies the rules to a path with an optional query. Empty parameters are removed, and so is an empty query.
    pub fn apply<'a>(&self, target: &'a str) -> Cow<'a, str> {
        let Some((path, query)) = target.split_once('?').filter(|_| self.is_active()) else {
            return target.into();
        };
        let fields = query
            .split('&')
            .filter(|field| !field.is_empty())
            .map(|field| (name(field), field));
        let mut fields: Vec<_> = fields.filter(|(name, _)| self.filter.keeps(name)).collect();
        if self.sort {
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        let fields: Vec<_> = fields.into_iter().map(|(_, field)| field).collect();
        if fields.is_empty() {
            path.into()
        } else {
            format!("{path}?{}", fields.join("&")).into()
        }
    }
}

impl QueryFilter {
    fn keeps(&self, name: &[u8]) -> bool {
        let has = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
        match self {
            Self::None => true,
            Self::Drop(patterns) => !has(patterns),
            Self::Keep(patterns) => has(patterns),
        }
    }
}

fn matches(pattern: &str, name: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix.as_bytes()),
        None => name == pattern.as_bytes(),
    }
}

/// Returns the decoded name of a parameter, so equivalent spellings are treated alike.
fn name(field: &str) -> Vec<u8> {
    percent_decoded(field.split_once('=').map_or(field, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(target: &str) -> String {
        QueryRules {
            sort: true,
            ..QueryRules::default()
        }
        .apply(target)
        .into_owned()
    }

    #[test]
    fn parameters_with_the_same_name_keep_their_order() {
        for (target, expected) in [
            ("/?b=1&a=2&b=0&a=1", "/?a=2&a=1&b=1&b=0"),
            ("/?a=2&a=1", "/?a=2&a=1"),
            ("/?b&a=&=x&a", "/?=x&a=&a&b"),
            ("/?a[1]=x&a[0]=y", "/?a[0]=y&a[1]=x"),
            ("/?&&b=1&&a=1&", "/?a=1&b=1"),
            ("/?&", "/"),
            ("/?", "/"),
            ("/x", "/x"),
            ("*", "*"),
            ("/?b=1?a=2&a", "/?a&b=1?a=2"),
        ] {
            assert_eq!(sorted(target), expected, "{target}");
            assert_eq!(sorted(expected), expected, "{target}");
        }
    }

    #[test]
    fn equivalent_spellings_have_the_same_order() {
        assert_eq!(sorted("/?b=2&%63=1&a=0"), "/?a=0&b=2&%63=1");
        assert_eq!(sorted("/?%63=1&a=0&b=2"), "/?a=0&b=2&%63=1");
    }

    #[test]
    fn without_rules_nothing_changes() {
        let rules = QueryRules::default();
        assert!(!rules.is_active());
        assert_eq!(rules.apply("/?&b&&a&"), "/?&b&&a&");
    }

    #[test]
    fn names_are_compared_whole_or_by_prefix() {
        let patterns = ["id", "utm_*"].map(str::to_owned).to_vec();
        let apply = |filter, target| {
            QueryRules {
                sort: false,
                filter,
            }
            .apply(target)
            .into_owned()
        };
        for (target, dropped, kept) in [
            ("/?id=1&ids=2&ID=3", "/?ids=2&ID=3", "/?id=1"),
            ("/?utm_=1&utm_x&utm=2", "/?utm=2", "/?utm_=1&utm_x"),
            ("/?utm%5Fx=1&i%64=2", "/", "/?utm%5Fx=1&i%64=2"),
            ("/?x=id&y=utm_a", "/?x=id&y=utm_a", "/"),
        ] {
            assert_eq!(
                apply(QueryFilter::Drop(patterns.clone()), target),
                dropped,
                "{target}"
            );
            assert_eq!(
                apply(QueryFilter::Keep(patterns.clone()), target),
                kept,
                "{target}"
            );
        }
        assert_eq!(
            apply(QueryFilter::Drop(vec!["*".to_owned()]), "/x?a=1&b"),
            "/x"
        );
    }
}
