//! Property tests of filters: parsing, and evaluation before all properties are known. `tests/data/filters.txt` lists
//! filters with their matches.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A row of which some properties are not known yet.
struct Known<'a> {
    properties: &'a BTreeMap<&'static str, Value>,
    hidden: &'static [&'static str],
}

impl Row for Known<'_> {
    fn property(&self, name: &str) -> Property<'_> {
        match self.properties.get(name) {
            _ if self.hidden.contains(&name) => Property::Unknown,
            Some(value) => Property::Is(value.into()),
            None => Property::Missing,
        }
    }
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a' é(]{0,3}".prop_map(|text| Value::String(text.into())),
        (-3..3_i32).prop_map(Value::Int32),
        (1_i64 << 40..(1 << 40) + 3).prop_map(Value::Int64),
        prop_oneof![Just(0.5), Just(-2.0), Just(1e40)].prop_map(Value::Double),
        any::<bool>().prop_map(Value::Boolean),
        Just(Value::Guid(Uuid::from_u128(1 << 100))),
        Just(Value::DateTime(DateTime::parse("2026-11-21T12:00:00.5Z").expect("a moment"))),
        any::<[u8; 2]>().prop_map(|bytes| Value::Binary(bytes.into())),
    ]
}

fn operands() -> impl Strategy<Value = Operand> {
    let names = prop_oneof![Just("PartitionKey"), Just("RowKey"), Just("a"), Just("_b1")];
    let property = names.prop_map(|name| Operand::Property(name.into()));
    prop_oneof![property, values().prop_map(Operand::Literal)]
}

fn booleans() -> impl Strategy<Value = Operand> {
    let property = prop_oneof![Just("a"), Just("_b1")].prop_map(|name| Operand::Property(name.into()));
    prop_oneof![property, any::<bool>().prop_map(|value| Operand::Literal(Value::Boolean(value)))]
}

fn filters() -> impl Strategy<Value = Filter> {
    let comparisons = prop_oneof![
        Just(Comparison::Equal),
        Just(Comparison::NotEqual),
        Just(Comparison::Less),
        Just(Comparison::LessOrEqual),
        Just(Comparison::Greater),
        Just(Comparison::GreaterOrEqual),
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
        let each: Vec<_> = filters.iter().map(|filter| format!("({})", written(filter))).collect();
        each.join(&format!(" {word} "))
    };
    match filter {
        Filter::All(filters) => joined(filters, "and"),
        Filter::Any(filters) => joined(filters, "OR"),
        Filter::Not(filter) => format!("not ({})", written(filter)),
        Filter::Is(operand) => side(operand),
        Filter::Compare(left, comparison, right) => {
            let word = match comparison {
                Comparison::Equal => "eq",
                Comparison::NotEqual => "ne",
                Comparison::Less => "lt",
                Comparison::LessOrEqual => "LE",
                Comparison::Greater => "gt",
                Comparison::GreaterOrEqual => "ge",
            };
            format!("{} {word}  {}", side(left), side(right))
        }
    }
}

fn side(operand: &Operand) -> String {
    match operand {
        Operand::Property(name) => name.to_string(),
        Operand::Literal(Value::String(text)) => format!("'{}'", text.replace('\'', "''")),
        Operand::Literal(Value::Int32(number)) => number.to_string(),
        Operand::Literal(Value::Int64(number)) => format!("{number}L"),
        Operand::Literal(Value::Double(number)) => format!("{number:e}"),
        Operand::Literal(Value::Boolean(value)) => value.to_string(),
        Operand::Literal(Value::DateTime(moment)) => format!("datetime'{moment}'"),
        Operand::Literal(Value::Guid(id)) => format!("guid'{id}'"),
        Operand::Literal(Value::Binary(bytes)) => format!("X'{}'", hex::encode(bytes)),
    }
}

fn properties() -> impl Strategy<Value = BTreeMap<&'static str, Value>> {
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
            (Some(required), Some(Value::String(text))) => **text != *required,
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
    let nested = |depth: usize| Filter::parse(&format!("{}a{}", "(".repeat(depth), ")".repeat(depth)));
    assert!(nested(40).is_ok());
    assert!(nested(1_000_000).is_err());
    assert!(Filter::parse(&"not ".repeat(100_000)).is_err());
}
