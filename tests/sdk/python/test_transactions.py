"""Entity group transactions of tables: all operations or none."""

import pytest
from azure.core import MatchConditions
from azure.data.tables import RequestTooLargeError, TableTransactionError, UpdateMode
from support import again, race


def entity(row, **properties):
    return {"PartitionKey": "p", "RowKey": row, **properties}


def rows(table):
    return {one["RowKey"]: one.get("v") for one in table.query_entities("PartitionKey eq 'p'")}


def failed(table, operations):
    """Submits operations that must fail and change nothing. Returns the error's code and the failed operation's index."""
    before = {one["RowKey"]: one.metadata["etag"] for one in table.list_entities()}
    with pytest.raises(TableTransactionError) as caught:
        table.submit_transaction(operations)
    assert {one["RowKey"]: one.metadata["etag"] for one in table.list_entities()} == before
    return caught.value.error_code, caught.value.index


def test_every_kind_of_operation(table):
    for row in "abcd":
        table.create_entity(entity(row, v=1, kept=True))
    tag = table.get_entity("p", "b").metadata["etag"]
    results = table.submit_transaction([
        ("create", entity("e", v=2)),
        ("update", entity("a", v=2)),
        ("update", entity("b", v=2), {"mode": UpdateMode.REPLACE, "etag": tag, "match_condition": MatchConditions.IfNotModified}),
        ("upsert", entity("c", v=2)),
        ("upsert", entity("f", v=2), {"mode": UpdateMode.REPLACE}),
        ("delete", entity("d")),
    ])
    assert len(results) == 6
    assert rows(table) == dict.fromkeys("abcef", 2)
    assert table.get_entity("p", "a")["kept"] and "kept" not in table.get_entity("p", "b")
    for result, row in zip(results, "eabcf", strict=False):
        assert table.get_entity("p", row).metadata["etag"] == result["etag"]
    # A batch returns the entities' tags, and later updates replace them.
    etag = table.get_entity("p", "e").metadata["etag"]
    table.update_entity(entity("e", v=3), etag=etag, match_condition=MatchConditions.IfNotModified)
    table.submit_transaction([("update", entity("e", v=4)), ("delete", entity("f"))])
    assert rows(table)["e"] == 4 and "f" not in rows(table)


def test_a_hundred_operations(table):
    table.submit_transaction([("create", entity(f"{number:03}", v=number)) for number in range(100)])
    assert len(rows(table)) == 100
    # A hundred deletions take more requests than an invocation of the Worker has.
    for half in (range(50), range(50, 100)):
        table.submit_transaction([("delete", entity(f"{number:03}")) for number in half])
    assert not rows(table)
    assert failed(table, [("create", entity(f"{number:03}")) for number in range(101)])[0] == "InvalidInput"


def test_a_failed_operation_changes_nothing(table):
    for row in "ab":
        table.create_entity(entity(row, v=1))
    stale = table.get_entity("p", "a").metadata["etag"]
    table.update_entity(entity("a", v=2))
    guard = {"etag": stale, "match_condition": MatchConditions.IfNotModified}
    new = ("create", entity("new"))
    assert failed(table, [new, ("create", entity("b"))]) == ("EntityAlreadyExists", 1)
    assert failed(table, [new, ("upsert", entity("b", v=9)), ("update", entity("a"), guard)]) == (
        "UpdateConditionNotSatisfied", 2,
    )
    assert failed(table, [("delete", entity("a"), guard), new]) == ("UpdateConditionNotSatisfied", 0)
    assert failed(table, [new, ("update", entity("missing"))]) == ("ResourceNotFound", 1)
    assert failed(table, [new, ("delete", entity("missing"))]) == ("ResourceNotFound", 1)
    assert failed(table, [new, ("upsert", entity("new"))]) == ("InvalidDuplicateRow", 1)
    assert rows(table) == {"a": 2, "b": 1}


def test_a_missing_table(tables):
    with pytest.raises(TableTransactionError) as caught:
        tables.get_table_client("missing").submit_transaction([("create", entity("a"))])
    assert caught.value.error_code == "TableNotFound"


def test_a_body_over_the_limit(table):
    large = [("create", entity(str(number), **{f"p{part}": "x" * 32_000 for part in range(14)})) for number in range(10)]
    with pytest.raises((TableTransactionError, RequestTooLargeError)):
        table.submit_transaction(large)
    assert not rows(table)


def test_one_of_many_transactions_wins(table):
    """Each creates its own row and the common one."""
    def submit(number):
        try:
            table.submit_transaction([("create", entity(f"own{number}")), ("create", entity("common", v=number))])
        except TableTransactionError as error:
            assert (error.error_code, error.index) == ("EntityAlreadyExists", 1)
            return None
        return number

    winners = [number for number in race(8, submit) if number is not None]
    assert len(winners) == 1
    assert rows(table) == {f"own{winners[0]}": None, "common": winners[0]}


def test_transfers_keep_the_sum_and_readers_see_whole_batches(table):
    for row in "ab":
        table.create_entity(entity(row, v=100))

    def transfer(change):
        """Returns True, or None if another client was faster."""
        entities = {row: table.get_entity("p", row) for row in "ab"}
        guard = lambda row: {"etag": entities[row].metadata["etag"], "match_condition": MatchConditions.IfNotModified}
        try:
            table.submit_transaction([
                ("update", entity("a", v=entities["a"]["v"] + change), guard("a")),
                ("update", entity("b", v=entities["b"]["v"] - change), guard("b")),
            ])
        except TableTransactionError as error:
            assert error.error_code == "UpdateConditionNotSatisfied"
            return None
        return True

    def work(number):
        for _ in range(10):
            if number % 2:
                seen = rows(table)
                assert seen["a"] + seen["b"] == 200, seen
            else:
                again(lambda: transfer(1 if number % 4 else -1))

    race(6, work)
    # Workers 0 and 4 transfer -1 ten times each, worker 2 transfers 1.
    assert rows(table) == {"a": 90, "b": 110}
