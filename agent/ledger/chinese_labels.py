"""Chinese for single words: metrics, and the labels of windows, tiers, stages, routes, reasons, walls and stops."""

from __future__ import annotations

_METRICS = {
    "output throughput per card": "每卡输出吞吐",
    "output throughput": "输出吞吐",
    "request throughput": "请求吞吐",
    "mean concurrency": "平均并发",
    "mean TTFT": "TTFT 均值",
    "median TTFT": "TTFT 中位数",
    "P90 TTFT": "TTFT P90",
    "P99 TTFT": "TTFT P99",
    "mean TPOT": "TPOT 均值",
    "median TPOT": "TPOT 中位数",
    "P90 TPOT": "TPOT P90",
    "P99 TPOT": "TPOT P99",
    "mean E2E latency": "E2E 均值",
    "P90 E2E latency": "E2E P90",
    "failed requests": "失败请求数",
}

_LABELS = {
    # windows: the users' reports keep the English names
    "whole": "whole（整轮）",
    "native": "native（稳态）",
    "in window": "in_window（稳态区间内）",
    # tiers
    "baseline": "基线",
    "confirmation": "确认",
    "sentinel": "哨兵复测",
    # stages
    "reserve": "占用主机",
    "prepare": "准备",
    "launch": "启动",
    "ready": "就绪",
    "canary": "试探请求",
    "warm-up": "预热",
    "cache": "缓存",
    "measure": "正式测量",
    "collect": "采集",
    "analyse": "分析",
    "record": "录制专家分布",
    "fit": "拟合专家布局",
    "profile": "短剖析",
    "evaluate": "质量评估",
    "release": "释放",
    # routes and reasons
    "orchestration fault": "编排故障",
    "promising": "有希望",
    "transport": "传输",
    "contract mismatch": "合同不符",
    "client": "压测客户端",
    "post-processing": "后处理",
    "unknown end": "结束状态未知",
    "environment": "环境",
    "evidence incomplete": "证据不全",
    "workload violated": "负载不符约定",
    "cancelled": "已取消",
    "unrecognised": "未识别",
    "slower": "变慢",
    "SLO violated": "违反 SLO",
    "infeasible": "不可行",
    "no significant gain": "无显著收益",
    "quality failed": "质量评测未通过",
    "gain": "有收益",
    "a gain is not excluded": "尚不能排除收益",
    # sent and findings
    "not sent": "未发出",
    "finished": "已完成",
    "unknown": "未知",
    "never ran": "从未运行",
    "dead": "已终止",
    # walls
    "prefill supply": "Prefill 供给",
    "decode batch": "Decode 批次",
    "client supply": "客户端供给",
    "slo": "SLO",
    "memory": "显存",
    "imbalance": "负载不均",
    # sources
    "rules": "机制规则",
    "optimizer": "优化器",
    "llm": "语言模型",
    "control": "随机对照",
    "operator": "操作员",
    # cost classes
    "hot": "热改（hot）",
    "restart": "重启（restart）",
    "rebuild": "换构建（rebuild）",
    # stop reasons
    "budget trials": "运行次数预算用尽",
    "budget hours": "时间预算用尽",
    "budget tokens": "token 预算用尽",
    "budget cost": "费用预算用尽",
    "no candidate": "没有候选",
    "goal reached": "目标达成",
    "baseline failed": "基线失败",
    "drift": "漂移",
}

LABELS: dict[str, str] = {**_METRICS, **_LABELS}
