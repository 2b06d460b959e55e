"""Entities: inserts, changes, queries and errors."""

import uuid
from datetime import datetime, timezone

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.data.tables import EdmType, EntityProperty, UpdateMode
from support import again, outcome, race, refused

VALUES = {
    "text": "quote's, ünïcödé 🦀",
    "whole": 42,
    "large": EntityProperty(1 << 40, EdmType.INT64),
    "real": 2.5,
    "endless": float("inf"),
    "bottomless": float("-inf"),
    "truth": True,
    "bytes": b"\x00\xff",
    "id": uuid.UUID("a0000000-0000-4000-8000-00000000000a"),
    "when": datetime(2026, 11, 21, 12, 30, 15, tzinfo=timezone.utc),
    "empty": "",
}


def entity(row="r", partition="p", **values):
    return {"PartitionKey": partition, "RowKey": row} | values


def unchanged(tag):
    return {"etag": tag, "match_condition": MatchConditions.IfNotModified}


def tag(table, row="r"):
    return table.get_entity("p", row).metadata["etag"]


def test_entities_keep_the_types_of_their_values(table):
    table.create_entity(entity(**VALUES))
    read = table.get_entity("p", "r")
    assert {name: read[name] for name in VALUES} == VALUES
    assert read.metadata["etag"].startswith('W/"datetime\'') and read.metadata["timestamp"]


def test_the_service_tells_its_properties(tables):
    assert tables.get_service_properties()["analytics_logging"].version == "1.0"


def test_an_entity_is_inserted_once(table):
    answers = race(6, lambda number: outcome(lambda: table.create_entity(entity(by=number))))
    assert sorted(map(str, answers)) == sorted(map(str, [(409, "EntityAlreadyExists")] * 5 + [("ok", None)]))
    assert table.get_entity("p", "r")["by"] == answers.index(("ok", None))


def test_replace_removes_and_merge_keeps(table):
    table.create_entity(entity(a=1, b=2))
    table.update_entity(entity(b=3, c=4))
    assert dict(table.get_entity("p", "r")) == entity(a=1, b=3, c=4), "merge is the default"
    table.update_entity(entity(d=5), UpdateMode.REPLACE)
    assert dict(table.get_entity("p", "r")) == entity(d=5)


def test_an_upsert_inserts_or_changes(table):
    table.upsert_entity(entity(a=1))
    table.upsert_entity(entity(b=2))
    assert dict(table.get_entity("p", "r")) == entity(a=1, b=2)
    table.upsert_entity(entity(c=3), UpdateMode.REPLACE)
    assert dict(table.get_entity("p", "r")) == entity(c=3)


def test_updates_with_tags_add_up(table):
    table.create_entity(entity(count=0))

    def add():
        read = table.get_entity("p", "r")
        change = entity(count=read["count"] + 1)
        answer = outcome(lambda: table.update_entity(change, **unchanged(read.metadata["etag"])))
        assert answer in (("ok", None), (412, "UpdateConditionNotSatisfied"))
        return True if answer[0] == "ok" else None

    race(4, lambda _: [again(add) for _ in range(8)])
    assert table.get_entity("p", "r")["count"] == 32


def test_a_stale_tag_changes_nothing(table):
    first = table.create_entity(entity(a=1))["etag"]
    assert first == tag(table)
    second = table.update_entity(entity(a=2), **unchanged(first))["etag"]
    assert second != first and second == tag(table)
    for late in (
        lambda: table.update_entity(entity(a=3), UpdateMode.MERGE, **unchanged(first)),
        lambda: table.update_entity(entity(a=3), UpdateMode.REPLACE, **unchanged(first)),
        lambda: table.delete_entity("p", "r", **unchanged(first)),
    ):
        refused(late, 412, "UpdateConditionNotSatisfied")
    assert table.get_entity("p", "r")["a"] == 2 and tag(table) == second
    table.delete_entity("p", "r", **unchanged(second))
    refused(lambda: table.get_entity("p", "r"), 404, "ResourceNotFound")


def test_every_write_of_an_entity_has_a_new_tag(table):
    tags = [table.create_entity(entity(a=1))["etag"]]
    tags += [table.upsert_entity(entity(a=1))["etag"] for _ in range(5)]
    assert len(set(tags)) == len(tags)


def test_missing_entities_and_tables(table, tables):
    refused(lambda: table.get_entity("p", "none"), 404, "ResourceNotFound")
    refused(lambda: table.update_entity(entity("none", a=1)), 404, "ResourceNotFound")
    table.delete_entity("p", "none")
    nowhere = tables.get_table_client("nowhere" + uuid.uuid4().hex)
    refused(lambda: nowhere.create_entity(entity()), 404, "TableNotFound")
    refused(lambda: tables.create_table(table.table_name), 409, "TableAlreadyExists")


@pytest.mark.parametrize("key", ["plain", "o'brien", "with space", "ünïcödé", "a+b=c&d", "100%", "", "(x,y)"])
def test_key(table, key):
    table.create_entity(entity(key, a=1))
    assert table.get_entity("p", key)["a"] == 1
    table.update_entity(entity(key, a=2))
    assert [found["a"] for found in table.query_entities("RowKey eq @key", parameters={"key": key})] == [2]
    table.delete_entity("p", key)
    assert list(table.list_entities()) == []


def filled(table):
    for number in range(10):
        table.create_entity(entity(f"{number:02}", "odd" if number % 2 else "even", number=number, name=f"n{number}"))
    return table


FILTERS = {
    "PartitionKey eq 'odd'": [1, 3, 5, 7, 9],
    "PartitionKey eq 'odd' and RowKey ge '05'": [5, 7, 9],
    "PartitionKey eq 'odd' and RowKey eq '05'": [5],
    "number lt 3": [0, 2, 1],
    "number ge 8 or name eq 'n1'": [8, 1, 9],
    "not (number ne 4)": [4],
    "PartitionKey eq 'even' and (number eq 2 or number gt 6)": [2, 8],
    "name gt 'n7'": [8, 9],
    "missing eq 1": [],
}


@pytest.mark.parametrize("text", FILTERS)
def test_filter(table, text):
    assert [found["number"] for found in filled(table).query_entities(text)] == FILTERS[text]


def test_results_come_in_pages_and_in_order(table):
    pages = [[found["number"] for found in page] for page in filled(table).list_entities(results_per_page=4).by_page()]
    assert pages == [[0, 2, 4, 6], [8, 1, 3, 5], [7, 9]]
    first = table.query_entities("number lt 9", results_per_page=4).by_page()
    assert [found["number"] for found in next(first)] == [0, 2, 4, 6]
    rest = table.query_entities("number lt 9", results_per_page=4).by_page(first.continuation_token)
    assert [found["number"] for page in rest for found in page] == [8, 1, 3, 5, 7]


def test_only_selected_properties_are_returned(table):
    found = next(filled(table).query_entities("number eq 3", select=["number"]))
    assert found["number"] == 3 and "name" not in found


def test_an_entity_needs_both_keys(table):
    with pytest.raises((HttpResponseError, ValueError)):
        table.create_entity({"PartitionKey": "p", "a": 1})
    assert list(table.list_entities()) == []


def test_a_deleted_table_is_gone(table):
    table.create_entity(entity(a=1))
    table.delete_table()
    refused(lambda: table.get_entity("p", "r"), 404)
