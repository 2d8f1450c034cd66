"""The ledger's sentences in Chinese, by their English. A test holds this table complete.

The terms are those of the users' own reports: 短筛, 确认, 有效负例, 编排故障, 整轮, 稳态.
"""

from __future__ import annotations

from agent.ledger.chinese_labels import LABELS

_TOP = {
    "SIMULATED POOL — no number on this page was measured on hardware": (
        "模拟资源池——本页没有任何数字是在真实硬件上测得的"
    ),
    "simulated pool": "模拟资源池",
    "Experiment ledger: {name}": "实验台账：{name}",
    "Study {study} on pool {pool}, as of {at}: {cards} cards, {trials} trials, {entries} ledger entries.": (
        "实验 {study}，资源池 {pool}，截至 {at}：卡片 {cards} 张，运行 {trials} 次，台账条目 {entries} 条。"
    ),
    "Goal": "目标",
    "Maximise {metric} ({window} window{target}) subject to {limits}; per card = divided by {cards} cards.": (
        "在满足 {limits} 的条件下最大化{metric}（{window} 窗口{target}）；每卡 = 除以 {cards} 张卡。"
    ),
    "Minimise {metric} ({window} window{target}) subject to {limits}; per card = divided by {cards} cards.": (
        "在满足 {limits} 的条件下最小化{metric}（{window} 窗口{target}）；每卡 = 除以 {cards} 张卡。"
    ),
    ", target {bound}": "，目标 {bound}",
    " and ": " 且 ",
    "no constraint": "无约束",
    "Scenario": "场景",
    "model": "模型",
    "deployment": "部署方式",
    "input": "输入",
    "{body} tokens of body, {encoded} as encoded, {task} task": (
        "正文 {body} token，编码后 {encoded} token，任务 {task}"
    ),
    "output": "输出",
    "exactly {n} tokens": "恰好 {n} token",
    "prefix cache": "前缀缓存",
    "zero: no request may reuse a prefix": "零缓存：任何请求都不得复用前缀",
    "warm: every request reaches at least {share}; {seed} seed and {check} check requests": (
        "热缓存：逐请求至少 {share}；seed 请求 {seed} 条，check 请求 {check} 条"
    ),
    "formal load": "正式负载",
    "{n} warm-up requests, seed {seed}": "预热 {n} 条，随机种子 {seed}",
    "screening": "短筛",
    "N={n}, judged in the {window} window": "N={n}，按 {window} 窗口判定",
    "window floor": "窗口下限",
    "at least {n} requests and {s:g} s": "至少 {n} 条请求且 {s:g} 秒",
    "native window rule": "native 窗口规则",
    "scenario digest": "场景摘要",
}

_ANSWER = {
    "Answer": "结论",
    "Keep {name}: {change}.": "保留 {name}：{change}。",
    "card": "卡片",
    "Windows: ": "窗口：",
    " {n} requests over {s:.2f} s; ": " {n} 条请求，{s:.2f} 秒; ",
    "Against the goal ({window} window, mean of {n} runs): ": "对照目标（{window} 窗口，{n} 次运行的均值）：",
    "met": "满足",
    "not met": "不满足",
    "NOT_OBSERVED": "NOT_OBSERVED",
    "quality: {state}": "质量：{state}",
    "not evaluated": "未评估",
    "passed": "通过",
    "failed": "未通过",
    "All {n} kept changes together: {metric} {before} → {after} ({gain}; {window} window, N={requests}). "
    "The figure belongs to the combination, not to any one change.": (
        "{n} 项保留改动合计：{metric} {before} → {after}（{gain}；{window} 窗口，N={requests}）。"
        "这是组合收益，不能归给其中任何一项。"
    ),
    "Nothing was kept: the starting configuration stands.": "没有保留任何改动：维持起始配置。",
    "its runs": "它的运行记录",
    "It reaches {metric} {value} ({window} window, N={n}, {runs} runs).": (
        "起始配置的{metric}为 {value}（{window} 窗口，N={n}，{runs} 次运行）。"
    ),
    "The study goes on.": "实验仍在继续。",
    "The study stopped: {reason}. {detail}": "实验已停止：{reason}。{detail}",
    "It had stopped, and was reopened by {by} on {at}: {reason}": "曾停止，由 {by} 于 {at} 重新开启：{reason}",
    "How to launch it": "如何启动",
    "The whole configuration is stored in ": "完整配置保存在 ",
    "Settings that differ from the start:": "与起始配置不同的设置：",
    "Everything else is as it was: ": "其余设置不变：",
    "all settings of the kept configuration": "保留配置的全部设置",
    "setting": "设置",
    "start": "起始",
    "kept": "保留",
    "Evidence that led to it": "依据的证据",
    "wall: {wall}": "瓶颈：{wall}",
    "figure of the incumbent": "现任配置的观测量",
    "value": "值",
    "observations": "观测次数",
    "run": "运行",
}

_TRADE_OFFS = {
    "Trade-offs": "取舍",
    "Means over runs. A configuration is in the set if it keeps every constraint and no other is at least as good in "
    "every column and better in one by more than the noise of their means. Runs of different N are never compared, and "
    "after a shift of the pool only runs since then count.": (
        "表中为多次运行的均值。一个配置满足全部约束，且没有其他配置在每一列都不差于它、并在某一列好过它超出均值的噪声，"
        "才算在取舍集合内。N 不同的运行从不互相比较；资源池发生漂移后，只计漂移之后的运行。"
    ),
    "Formal load": "正式负载",
    "Screening load (short runs, chosen from: not confirmed)": "短筛负载（短运行，仅用于挑选，未经确认）",
    "{title}: N={n}, {window} window": "{title}：N={n}，{window} 窗口",
    "No valid run at this load.": "该负载下没有有效运行。",
    "configuration": "配置",
    "runs": "运行次数",
    "standing": "地位",
    "{n} more are in experiments.csv.": "另有 {n} 个见 experiments.csv。",
    "breaks a constraint": "违反约束",
    "not all figures observed": "观测不全",
    "dominated": "被支配",
    "in the set": "在集合内",
    "Trade-offs between the objective and the reported latencies": "优化目标与各项时延之间的取舍",
}

_PROGRESS = {
    "Progress": "进展",
    "The incumbent over time, with every run and every fault": "现任配置随时间的变化，含每次运行与每次故障",
    "N={n}, {window} window": "N={n}，{window} 窗口",
    "no valid run": "没有有效运行",
    "hours since the study began": "实验开始后的小时数",
    "incumbent (mean of its runs)": "现任配置（各次运行均值）",
    "incumbent, one run": "现任配置，单次运行",
    "card, promising": "候选，有希望",
    "confirmation, kept": "确认并保留",
    "valid negative": "有效负例",
    "not judged yet": "尚未判定",
    "fault (has no value)": "故障（没有数值）",
}

_TRIED = {
    "What was tried": "试过什么",
    "No card was run.": "没有执行任何卡片。",
    "change": "改动",
    "wall and mechanism": "瓶颈与机制",
    "screening effect": "短筛效果",
    "confirmation effect": "确认效果",
    "outcome": "结果",
    "what it decides": "影响的决定",
    "running": "运行中",
    "held": "挂起",
    "open": "未结",
    "held: end unknown": "挂起：结束状态未知",
    "not comparable": "不可比较",
    "no number": "没有数值",
    "fault: {reason}": "故障：{reason}",
    "negative: {reason}": "负例：{reason}",
    "promising: {reason}": "有希望：{reason}",
    "nothing yet": "尚无",
    "nothing about the configuration; it may be tried again": "与配置优劣无关；可以再试",
    "the incumbent changed": "现任配置已更换",
    "{window} window, N={n}, {after} against {before} runs": "{window} 窗口，N={n}，{after} 次对 {before} 次",
    "{metric} {before} → {after}: {gain} {interval} at {confidence:.0f} % confidence ({basis})": (
        "{metric} {before} → {after}：{gain}，{confidence:.0f} % 置信区间 {interval}（{basis}）"
    ),
    "Faults": "故障",
    "A fault is never a number: none of these counts for or against a configuration.": (
        "故障从不计为数值：以下各项既不支持也不否定任何配置。"
    ),
    "None.": "无。",
    "trial": "运行",
    "stage": "阶段",
    "attempt": "第几次",
    "reason": "原因",
    "formal load sent": "正式负载是否发出",
    "repair": "修复",
    "detail": "详情",
    "repaired: {how}": "已修复：{how}",
    "a later attempt of the stage succeeded": "该阶段后续重试成功",
    "not repaired; it ended the trial": "未修复，本次运行到此为止",
    "not repaired": "未修复",
    "Refused before running": "执行前被拒绝",
    "proposed by": "提出者",
    "{n} earlier ones are in experiments.json.": "更早的 {n} 条见 experiments.json。",
    "A proposer gave no usable answer {n} times; the last was {source}: {detail}.": (
        "提案方有 {n} 次没有给出可用回答；最近一次是 {source}：{detail}。"
    ),
}

_LOOP = {
    "Noise floor": "噪声下限",
    "Relative standard deviation of one run, pooled over repeats of one configuration at one load; the assumption of "
    "the goal ({assumed}) counts for two degrees of freedom.": (
        "单次运行的相对标准差，由同一配置、同一负载的重复运行合并得出；目标文件中的假设值（{assumed}）按两个自由度计入。"
    ),
    "{window} window: {sd} from {runs} repeated runs ({df:.0f} degrees of freedom).": (
        "{window} 窗口：{sd}，来自 {runs} 次重复运行（自由度 {df:.0f}）。"
    ),
    "load": "负载",
    "mean": "均值",
    "spread (sd / mean)": "离散（标准差/均值）",
    "Predictions": "预测",
    "A Brier score of 0 is perfect, 0.25 is a coin. Faults are left out: they say nothing about a prediction.": (
        "Brier 分数 0 为完美，0.25 等于掷硬币。故障不计入：它们与预测无关。"
    ),
    "cards": "卡片数",
    "with an effect": "有实测效果",
    "right sign": "方向正确",
    "promising to the end": "最终成立",
    "Brier score": "Brier 分数",
    "Drift of the pool:": "资源池漂移：",
    "No drift of the pool was seen in the incumbent's own runs.": "在现任配置自身的复测中没有看到资源池漂移。",
    "N={n}, C={c}: {change} against its own earlier runs, ": "N={n}，C={c}：相对自身此前运行 {change}，",
    "shown by two runs": "两次运行证实",
    "suspected; nothing is kept until it is settled": "存疑；在查清之前不保留任何配置",
    "What is still open": "还没有答案的",
    "Nothing.": "无。",
    ": its end is unknown at stage {stage}: {detail}. Nothing is sent until a person settles it.": (
        "：在{stage}阶段结束状态未知：{detail}。在有人处理之前不再发送任何负载。"
    ),
    " has no result yet.": " 尚无结果。",
    " is not decided.": " 尚未判定。",
    "{name}: the quality of its outputs was not evaluated; speed is no evidence of it.": (
        "{name}：输出质量尚未评估；速度不能证明质量。"
    ),
    " changes the numerics of the model: an evaluation is due.": " 会改变模型数值：需要补做质量评估。",
    " ended in a fault: its question is not answered.": " 以故障告终：它的问题没有得到回答。",
    "Cost": "成本",
    "{elapsed} from the first entry to the last. Stages do not nest, so their times add up to {total}; the remaining "
    "{idle} was spent between trials.": (
        "从第一条到最后一条共 {elapsed}。阶段互不包含，时间相加为 {total}；其余 {idle} 花在两次运行之间。"
    ),
    "The formal windows hold {formal} of virtual time, more than the clock showed: time beyond them says nothing about "
    "a real pool.": "正式窗口合计 {formal} 虚拟时间，长于真实时钟：窗口外时间对真实资源池没有意义。",
    "{formal} was inside a formal window; {beyond} was controller time beyond it, {measure} of that in the measure "
    "stage itself.": "正式窗口内 {formal}；窗口外控制器时间 {beyond}，其中 {measure} 在正式测量阶段。",
    "attempts": "次数",
    "wall time": "墙钟时间",
    "share": "占比",
    "all stages": "全部阶段",
    "Language model: {n} tokens.": "语言模型：{n} token。",
    "The loop itself": "闭环自身",
    "figure": "指标",
    "cards decided": "已判定的卡片",
    "{n} of {all}": "{n} / {all}",
    "time from proposal to decision, median": "从提出到判定的时间，中位数",
    "time from proposal to decision, longest": "从提出到判定的时间，最长",
    "share of decided cards that changed the kept configuration": "改变了保留配置的卡片占已判定的比例",
    "negatives closed by a single run": "一次运行即关闭的负例比例",
    "repeated negatives": "重复的负例",
    "formal loads sent again": "重发的正式负载",
    "trials complete at the first try": "一次完成的运行比例",
    "cards that reused the running service (cost class hot)": "复用热服务的卡片（成本类 hot）",
    "Data": "数据",
    ": one row per run and window, in full precision. Texts on these pages have two decimals. ": (
        "：每次运行、每个窗口一行，保留原始精度。页面正文取两位小数。"
    ),
    "NOT_OBSERVED means that a value was not observed; it is never filled in from another field.": (
        "NOT_OBSERVED 表示该值未观测到；从不用其他字段补造。"
    ),
}

_CARD = {
    "Card {name}": "卡片 {name}",
    "Starting configuration": "起始配置",
    "← index": "← 返回总览",
    "Hypothesis": "假设",
    "field": "项目",
    "declared bundle": "声明的组合改动",
    "The effect belongs to the combination, not to either part.": "效果属于这一组合，不能归给其中任何一项。",
    "single change": "唯一改动",
    "of": "父配置",
    "wall": "瓶颈",
    "mechanism": "机制",
    "if promising": "若有希望",
    "if negative": "若为负例",
    "cost class": "成本类",
    "changes the numerics of the model": "是否改变模型数值",
    "yes": "是",
    "no": "否",
    ", {n} tokens": "，{n} token",
    ", prompt {digest}": "，提示词 {digest}",
    "admitted": "受理时间",
    "decided": "判定时间",
    "not yet": "尚未",
    "{at}, {waited} after admission": "{at}，受理后 {waited}",
    "card digest": "卡片摘要",
    "Evidence": "证据",
    "Exact difference": "精确差异",
    "parent": "父配置",
    "Predicted and measured": "预测与实测",
    "effect on the objective": "对目标的影响",
    "predicted": "预测",
    "chance given to a gain": "预测的成功概率",
    "measured": "实测",
    "inside the prediction": "是否落在预测内",
    "Verdict": "判定",
    "No phase is decided.": "还没有任何阶段得出判定。",
    "side": "一方",
    "requests": "请求数",
    "duration": "时长",
    "incumbent": "现任配置",
    "Noise of one run: {sd}; window rule {rule}.": "单次运行噪声：{sd}；窗口规则 {rule}。",
    " Planned for {n} pairs; the interval allows for every look before that.": (
        " 计划 {n} 对运行；区间已计入此前的每一次查看。"
    ),
    "Quality of the outputs": "输出质量",
    "evaluated": "评测时间",
    "what it printed": "命令输出",
    "Runs of this card": "本卡片的运行",
    "Runs as the incumbent": "作为现任配置的运行",
    "Whole configuration": "完整配置",
    "Trial {id}: {tier}": "运行 {id}：{tier}",
    "End unknown at stage {stage}: {detail}.": "在{stage}阶段结束状态未知：{detail}。",
    " Settled as {finding} by {by}: {reason}.": " 由 {by} 认定为{finding}：{reason}。",
    "window": "窗口",
    "rule": "规则",
    "meets the floor": "达到下限",
    "{ok} of {planned} requests succeeded, {failed} failed; {input} input, {output} output and {cached} cached "
    "tokens; accept length {al} over the whole run; {client}, version {version}.": (
        "{planned} 条请求中成功 {ok} 条、失败 {failed} 条；输入 {input}、输出 {output}、缓存 {cached} token；"
        "整轮接受长度 {al}；{client}，版本 {version}。"
    ),
    "Per-request records behind these numbers: sha256 ": "这些数字所依据的逐请求记录：sha256 ",
    "check": "检查项",
    "result": "结论",
    "what it saw": "所见",
    "The installed engine, asked before the launch: {answers}.": "启动前向已安装引擎询问的结果：{answers}。",
    "Builds as the servers report them: {sources}.": "服务端自报的构建：{sources}。",
    "Set otherwise by the server: {values}.": "服务端自行改动的值：{values}。",
    "server": "服务端",
    "ranks": "rank 数",
    "samples": "采样次数",
    "waiting": "等待",
    "KV pool in use": "KV 池占用",
    "accept length": "接受长度",
    "Sampled while the load ran: median over ranks and samples, highest in brackets.": (
        "压测期间采样：各 rank、各次采样的中位数，括号内为最高值。"
    ),
    "A short profile after the load, conclusions only: {profiles}.": "压测之后的短剖析，仅留结论：{profiles}。",
    "began": "开始",
    "note": "备注",
    "Stages together: {total}.": "阶段合计：{total}。",
    "raw file": "原始文件",
    "size": "大小",
    "the configuration did it": "由配置本身引起",
}

CHINESE: dict[str, str] = {
    **_TOP,
    **_ANSWER,
    **_TRADE_OFFS,
    **_PROGRESS,
    **_TRIED,
    **_LOOP,
    **_CARD,
    **LABELS,
}
