"""The study graph: the only user of langgraph. It chooses what is next; what happened is in the ledger.

Its state holds ids and words only. `durability="sync"`, no retry policy and no interrupt: a node may run again at any
time, so nodes are written for that, and approval is a word in the control file that is bound to a card's digest.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, TypedDict, cast

# LangSmith comes with langgraph; with this variable set in the operator's shell it would send run state away.
os.environ["LANGSMITH_TRACING"] = "false"

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from agent.nodes import Nodes, node_of

STEP_LIMIT = 100_000
NODES = ("survey", "propose", "start", "execute", "close", "evaluate", "stop", "hold")


class GraphState(TypedDict):
    """`waiting`: why nothing more can be done now. `ended`: why the study is over. Both empty while it goes on."""

    study_id: str
    next_node: str
    waiting: str
    ended: str


class _Steps:
    """Each node as langgraph calls it: the state in, its changes out. No rule lives here or in an edge."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def survey(self, state: GraphState) -> dict[str, Any]:
        return {"next_node": node_of(self._nodes.survey())}

    def propose(self, state: GraphState) -> dict[str, Any]:
        return {"waiting": self._nodes.propose() or ""}

    def start(self, state: GraphState) -> dict[str, Any]:
        return {"waiting": self._nodes.start() or ""}

    def execute(self, state: GraphState) -> dict[str, Any]:
        return {"waiting": self._nodes.execute() or ""}

    def close(self, state: GraphState) -> dict[str, Any]:
        self._nodes.close()
        return {}

    def evaluate(self, state: GraphState) -> dict[str, Any]:
        return {"waiting": self._nodes.evaluate() or ""}

    def stop(self, state: GraphState) -> dict[str, Any]:
        return {"ended": self._nodes.stop() or "stopped"}

    def hold(self, state: GraphState) -> dict[str, Any]:
        return {"waiting": self._nodes.hold() or ""}


def build_graph(nodes: Nodes) -> StateGraph[GraphState, None, GraphState, GraphState]:
    """survey → propose | start | execute | close | evaluate | stop | hold; all but stop lead back to it, or wait."""
    steps = _Steps(nodes)
    graph = StateGraph(GraphState)
    for name in NODES:
        graph.add_node(name, getattr(steps, name))
    graph.add_edge(START, "survey")
    graph.add_conditional_edges("survey", lambda state: state["next_node"])
    graph.add_edge("close", "survey")
    for name in ("propose", "start", "execute", "evaluate", "hold"):
        graph.add_conditional_edges(name, _go_on, {"survey": "survey", END: END})
    graph.add_edge("stop", END)
    return graph


def _go_on(state: GraphState) -> str:
    return END if state["waiting"] else "survey"


def run_graph(nodes: Nodes, checkpoints: Path) -> GraphState:
    """Run the study until it waits or ends. Always enters at survey: the ledger says where it stands."""
    study_id = nodes.store.study_id
    with closing(sqlite3.connect(checkpoints, check_same_thread=False)) as connection:
        saver = SqliteSaver(connection)
        saver.delete_thread(study_id)  # every superstep stores a checkpoint; only this run's are of use
        app = build_graph(nodes).compile(checkpointer=saver)
        state = GraphState(study_id=study_id, next_node="", waiting="", ended="")
        config: Any = {"configurable": {"thread_id": study_id}, "recursion_limit": STEP_LIMIT}
        result = app.invoke(state, config, durability="sync")
        return cast("GraphState", result)
