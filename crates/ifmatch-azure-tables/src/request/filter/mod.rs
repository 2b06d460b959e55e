//! `$filter` expressions.

use std::cmp::Ordering;

use uuid::Uuid;

use crate::entity::datetime::DateTime;
use crate::entity::edm::EdmValue;
use crate::entity::properties::{PARTITION_KEY, ROW_KEY, TIMESTAMP};
use crate::error::TableError;

mod parse;
mod token;

/// A filter expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    /// All of these hold.
    All(Vec<Filter>),
    /// At least one of these holds.
    Any(Vec<Filter>),
    /// This doesn't hold.
    Not(Box<Filter>),
    /// A comparison.
    Compare(FilterOperand, ComparisonOperator, FilterOperand),
    /// The operand is true: a property or a boolean literal.
    Is(FilterOperand),
}

/// An operand of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FilterOperand {
    Property(Box<str>),
    Literal(EdmValue),
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComparisonOperator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The subject of a filter.
pub(crate) trait Row {
    /// Returns a property.
    fn property(&self, name: &str) -> PropertyValue<'_>;
}

/// The value of a property, or the fact that it wasn't read yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PropertyValue<'a> {
    /// The property wasn't read yet.
    Unknown,
    /// The property doesn't exist.
    Missing,
    /// The property has this value.
    Is(Scalar<'a>),
}

/// A value in a comparison. Numbers of different types are comparable.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scalar<'a> {
    Text(&'a str),
    Whole(i64),
    Real(f64),
    Truth(bool),
    Moment(DateTime),
    Id(Uuid),
    Bytes(&'a [u8]),
}

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// The text isn't a filter; the message gives the position.
    pub(crate) fn parse(text: &str) -> Result<Self, TableError> {
        parse::filter(text)
    }

    /// Returns `true` if the filter holds, or `None` if that depends on properties that weren't read yet.
    ///
    /// A comparison with a missing property, or one of another type, doesn't hold.
    pub(crate) fn holds(&self, row: &impl Row) -> Option<bool> {
        match self {
            Self::All(filters) => all(filters.iter().map(|filter| filter.holds(row))),
            Self::Any(filters) => all(filters
                .iter()
                .map(|filter| filter.holds(row).map(|holds| !holds)))
            .map(|no| !no),
            Self::Not(filter) => filter.holds(row).map(|holds| !holds),
            Self::Is(operand) => match operand.value(row) {
                PropertyValue::Unknown => None,
                value => Some(value == PropertyValue::Is(Scalar::Truth(true))),
            },
            Self::Compare(left, comparison, right) => match (left.value(row), right.value(row)) {
                (PropertyValue::Unknown, _) | (_, PropertyValue::Unknown) => None,
                (PropertyValue::Is(left), PropertyValue::Is(right)) => {
                    Some(comparison.holds(left, right))
                }
                _ => Some(false),
            },
        }
    }

    /// Returns the partition key and row key that every match must have, if the filter determines them.
    pub(crate) fn keys(&self) -> (Option<&str>, Option<&str>) {
        (self.required(PARTITION_KEY), self.required(ROW_KEY))
    }

    /// Returns the text that a property must equal.
    fn required(&self, name: &str) -> Option<&str> {
        match self {
            Self::All(filters) => filters.iter().find_map(|filter| filter.required(name)),
            Self::Compare(
                FilterOperand::Property(property),
                ComparisonOperator::Equal,
                FilterOperand::Literal(EdmValue::String(text)),
            )
            | Self::Compare(
                FilterOperand::Literal(EdmValue::String(text)),
                ComparisonOperator::Equal,
                FilterOperand::Property(property),
            ) => (**property == *name).then_some(text),
            _ => None,
        }
    }
}

/// Three-valued AND: a single `false` decides.
fn all(mut each: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut known = Some(true);
    each.find_map(|holds| match holds {
        Some(true) => None,
        Some(false) => Some(Some(false)),
        None => {
            known = None;
            None
        }
    })
    .unwrap_or(known)
}

impl FilterOperand {
    /// Returns `true` if the operand may be boolean. The types of most properties are known only from the entities.
    fn may_be_boolean(&self) -> bool {
        match self {
            Self::Literal(value) => matches!(value, EdmValue::Boolean(_)),
            Self::Property(name) => ![PARTITION_KEY, ROW_KEY, TIMESTAMP].contains(&&**name),
        }
    }

    fn value<'a>(&'a self, row: &'a impl Row) -> PropertyValue<'a> {
        match self {
            Self::Literal(value) => PropertyValue::Is(value.into()),
            Self::Property(name) => row.property(name),
        }
    }
}

impl ComparisonOperator {
    fn holds(self, left: Scalar<'_>, right: Scalar<'_>) -> bool {
        let Some(order) = left.compare(right) else {
            // One of the numbers is NaN.
            return self == Self::NotEqual && left.is_number() && right.is_number();
        };
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Scalar<'_> {
    /// Compares two values, unless their types differ or a number is NaN.
    fn compare(self, other: Scalar<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Text(one), Scalar::Text(other)) => Some(one.cmp(other)),
            (Self::Whole(one), Scalar::Whole(other)) => Some(one.cmp(&other)),
            (Self::Truth(one), Scalar::Truth(other)) => Some(one.cmp(&other)),
            (Self::Moment(one), Scalar::Moment(other)) => Some(one.cmp(&other)),
            (Self::Id(one), Scalar::Id(other)) => Some(one.cmp(&other)),
            (Self::Bytes(one), Scalar::Bytes(other)) => Some(one.cmp(other)),
            (one, other) => one.number()?.partial_cmp(&other.number()?),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "doubles have no more digits to compare with"
    )]
    fn number(self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(number as f64),
            Self::Real(number) => Some(number),
            _ => None,
        }
    }

    fn is_number(self) -> bool {
        self.number().is_some()
    }
}

impl<'a> From<&'a EdmValue> for Scalar<'a> {
    fn from(value: &'a EdmValue) -> Self {
        match value {
            EdmValue::String(text) => Self::Text(text),
            EdmValue::Int32(number) => Self::Whole((*number).into()),
            EdmValue::Int64(number) => Self::Whole(*number),
            EdmValue::Double(number) => Self::Real(*number),
            EdmValue::Boolean(value) => Self::Truth(*value),
            EdmValue::DateTime(moment) => Self::Moment(*moment),
            EdmValue::Guid(id) => Self::Id(*id),
            EdmValue::Binary(bytes) => Self::Bytes(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A row of which some properties aren't known yet.
    struct Known<'a> {
        properties: &'a BTreeMap<&'static str, EdmValue>,
        hidden: &'static [&'static str],
    }

    impl Row for Known<'_> {
        fn property(&self, name: &str) -> PropertyValue<'_> {
            match self.properties.get(name) {
                _ if self.hidden.contains(&name) => PropertyValue::Unknown,
                Some(value) => PropertyValue::Is(value.into()),
                None => PropertyValue::Missing,
            }
        }
    }

    fn values() -> impl Strategy<Value = EdmValue> {
        prop_oneof![
            "[a' é(]{0,3}".prop_map(|text| EdmValue::String(text.into())),
            (-3..3_i32).prop_map(EdmValue::Int32),
            (1_i64 << 40..(1 << 40) + 3).prop_map(EdmValue::Int64),
            prop_oneof![Just(0.5), Just(-2.0), Just(1e40)].prop_map(EdmValue::Double),
            any::<bool>().prop_map(EdmValue::Boolean),
            Just(EdmValue::Guid(Uuid::from_u128(1 << 100))),
            Just(EdmValue::DateTime(
                DateTime::parse("2026-11-21T12:00:00.5Z").expect("a moment")
            )),
            any::<[u8; 2]>().prop_map(|bytes| EdmValue::Binary(bytes.into())),
        ]
    }

    fn operands() -> impl Strategy<Value = FilterOperand> {
        let names = prop_oneof![Just("PartitionKey"), Just("RowKey"), Just("a"), Just("_b1")];
        let property = names.prop_map(|name| FilterOperand::Property(name.into()));
        prop_oneof![property, values().prop_map(FilterOperand::Literal)]
    }

    fn booleans() -> impl Strategy<Value = FilterOperand> {
        let property = prop_oneof![Just("a"), Just("_b1")]
            .prop_map(|name| FilterOperand::Property(name.into()));
        prop_oneof![
            property,
            any::<bool>().prop_map(|value| FilterOperand::Literal(EdmValue::Boolean(value)))
        ]
    }

    fn filters() -> impl Strategy<Value = Filter> {
        let comparisons = prop_oneof![
            Just(ComparisonOperator::Equal),
            Just(ComparisonOperator::NotEqual),
            Just(ComparisonOperator::Less),
            Just(ComparisonOperator::LessOrEqual),
            Just(ComparisonOperator::Greater),
            Just(ComparisonOperator::GreaterOrEqual),
        ];
        let compare = (operands(), comparisons, operands());
        let leaf = prop_oneof![
            4 => compare.prop_map(|(left, comparison, right)| Filter::Compare(left, comparison, right)),
            1 => booleans().prop_map(Filter::Is),
        ];
        leaf.prop_recursive(3, 20, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 2..4).prop_map(Filter::All),
                prop::collection::vec(inner.clone(), 2..4).prop_map(Filter::Any),
                inner.prop_map(|filter| Filter::Not(Box::new(filter))),
            ]
        })
    }

    fn written(filter: &Filter) -> String {
        let joined = |filters: &[Filter], word: &str| {
            let each: Vec<_> = filters
                .iter()
                .map(|filter| format!("({})", written(filter)))
                .collect();
            each.join(&format!(" {word} "))
        };
        match filter {
            Filter::All(filters) => joined(filters, "and"),
            Filter::Any(filters) => joined(filters, "OR"),
            Filter::Not(filter) => format!("not ({})", written(filter)),
            Filter::Is(operand) => side(operand),
            Filter::Compare(left, comparison, right) => {
                let word = match comparison {
                    ComparisonOperator::Equal => "eq",
                    ComparisonOperator::NotEqual => "ne",
                    ComparisonOperator::Less => "lt",
                    ComparisonOperator::LessOrEqual => "LE",
                    ComparisonOperator::Greater => "gt",
                    ComparisonOperator::GreaterOrEqual => "ge",
                };
                format!("{} {word}  {}", side(left), side(right))
            }
        }
    }

    fn side(operand: &FilterOperand) -> String {
        match operand {
            FilterOperand::Property(name) => name.to_string(),
            FilterOperand::Literal(EdmValue::String(text)) => {
                format!("'{}'", text.replace('\'', "''"))
            }
            FilterOperand::Literal(EdmValue::Int32(number)) => number.to_string(),
            FilterOperand::Literal(EdmValue::Int64(number)) => format!("{number}L"),
            FilterOperand::Literal(EdmValue::Double(number)) => format!("{number:e}"),
            FilterOperand::Literal(EdmValue::Boolean(value)) => value.to_string(),
            FilterOperand::Literal(EdmValue::DateTime(moment)) => format!("datetime'{moment}'"),
            FilterOperand::Literal(EdmValue::Guid(id)) => format!("guid'{id}'"),
            FilterOperand::Literal(EdmValue::Binary(bytes)) => format!("X'{}'", hex::encode(bytes)),
        }
    }

    fn properties() -> impl Strategy<Value = BTreeMap<&'static str, EdmValue>> {
        let name = prop_oneof![Just("PartitionKey"), Just("RowKey"), Just("a"), Just("_b1")];
        prop::collection::btree_map(name, values(), 0..4)
    }

    proptest! {
        #[test]
        fn filters_round_trip(filter in filters()) {
            let text = written(&filter);
            prop_assert_eq!(Filter::parse(&text).ok(), Some(filter), "{}", text);
        }

        /// A result without some properties is the result with all of them.
        #[test]
        fn early_results_are_final(filter in filters(), properties in properties()) {
            let whole = filter.holds(&Known { properties: &properties, hidden: &[] });
            prop_assert!(whole.is_some());
            for hidden in [&["a"][..], &["a", "_b1"], &["a", "_b1", "RowKey", "PartitionKey"]] {
                let early = filter.holds(&Known { properties: &properties, hidden });
                prop_assert!(early.is_none() || early == whole, "{:?} {:?}", early, whole);
            }
        }

        /// Every match has the keys that the filter is said to require.
        #[test]
        fn matches_have_the_required_keys(filter in filters(), properties in properties()) {
            let (partition, row) = filter.keys();
            let differs = |name, required: Option<&str>| match (required, properties.get(name)) {
                (Some(required), Some(EdmValue::String(text))) => **text != *required,
                (required, _) => required.is_some(),
            };
            if differs("PartitionKey", partition) || differs("RowKey", row) {
                prop_assert_eq!(filter.holds(&Known { properties: &properties, hidden: &[] }), Some(false));
            }
        }

        #[test]
        fn parsing_never_panics(text in "([a-z]{1,3}|eq|and|or|not|'|\\(|\\)| |[0-9.eL-]{1,4}|guid'|x'0?|é|,){0,20}") {
            if let Ok(filter) = Filter::parse(&text) {
                filter.holds(&Known { properties: &BTreeMap::new(), hidden: &["a"] });
            }
        }
    }

    #[test]
    fn nesting_is_limited() {
        let nested =
            |depth: usize| Filter::parse(&format!("{}a{}", "(".repeat(depth), ")".repeat(depth)));
        assert!(nested(40).is_ok());
        assert!(nested(1_000_000).is_err());
        assert!(Filter::parse(&"not ".repeat(100_000)).is_err());
    }
}
