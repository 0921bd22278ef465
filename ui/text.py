"""Every sentence of the page, in one place. Words in braces are filled in by `str.format`."""

TITLE = "Hierarchical speculative decoding"

# The six steps of the data path
PICK, MEASURE, PLAN, GENERATE, COMPARE, EXPORT = "1 Pick", "2 Measure", "3 Plan", "4 Generate", "5 Compare", "6 Export"

UNEXPECTED = "Something unexpected went wrong here ({kind}); the details are in the server's log. The page goes on working; try again."
STOPPED_BEFORE_START = "Stopped before it started."
STARTING = "Starting …"
WAITING = "Waiting for the device: one run at a time uses it, and yours is in line."
READY = "Ready."
STOPPING = "Stopping…"
NOTHING_TO_STOP = "Nothing of yours is running."
COMPARED = "Compared ({key})."
COMPARED_BEFORE = "Compared ({key}), with the plan from before the one on this page. Its id fetches it on the Export tab."
FOLLOWED_ELSEWHERE = "This run goes on in another tab of yours. Load this page anew to use it."
STILL_RUNNING = "Still running."
BACK = "Ready. Your results from before the page was loaded anew are here."
LEFT, UNDER_A_SECOND = "{time} left", "under a second"
RUN_ID = "run {key}"

# Sidebar
TARGET = "Target model"
TARGET_INFO = "The model whose text you get. A name from the list, a hub id, or a folder on the server."
DEVICE, DEVICE_AUTO = "Device", "automatic"
DTYPE = "Precision of the target (dtype)"
CANDIDATES = "Candidate drafts"
UNUSABLE = "not usable here: the reasons"
CANDIDATE_KINDS = {"free": "model-free", "derived": "made from the target", "model": "model"}
CANDIDATES_INFO = "The planner chooses among the ticked ones; measuring takes time for each."
CANDIDATES_WAITING = "Checking which drafts can run here …"
SAMPLING = "Sampling"
TEMPERATURE, TOP_K, TOP_P, SEED = "Temperature (0 is greedy)", "Top-k (0 is off)", "Top-p (1 is off)", "Seed"
MEMORY, MEMORY_FIT = "Memory", "Computed from the configurations before anything is loaded"

# Pick
PICK_HELP = "Every draft that could stand under this target. What cannot is listed too, with the reason."
PICK_CAPTION = "Candidate drafts with kind, size, memory and status"
ADD_MODEL = "Add a draft by hub id or folder"
ADD_EXAMPLE = "owner/name"
ADD_BUTTON = "Add"
ADD_EMPTY = "Give a hub id such as Qwen/Qwen2.5-0.5B-Instruct, or a folder on the server."
ADDED = "{name} is in the list."
ADDED_UNUSABLE = "{name} cannot be used: {reason}"
ADDED_TARGET = "{name} is the target itself; add another, smaller model as a draft."
NO_USABLE = "No draft can stand under this target here; the reasons are below."
STATUS = {"ready": "ready", "download": "downloads on first use", "unusable": "unusable"}

# Measure
MEASURE_BUTTON = "Measure"
MEASURE_HELP = (
    "Times forward passes of every model at several widths (of a draft the mean of four in a row, as it runs below a verifier), and "
    "how often each model's tokens are accepted by every larger one, on text that the target itself writes."
)
THOROUGH = "Thorough (more prompts and widths, takes several times longer)"
AGAIN = "Measure again, even if there is a kept measurement of the same conditions"
OWN_PROMPTS = "Your own prompts"
OWN_PROMPTS_HELP = "Paste prompts or load a file; empty takes the built-in set of about 40. txt: one per line, or separated by blank lines."
PROMPTS_FILE, PROMPTS_FORMAT, PROMPTS_COLUMN = "Load a prompt file", "Format", "Column or field (jsonl, csv)"
PROMPTS_NOT_TEXT = "This file is not text in UTF-8; save it as txt, jsonl or csv."
HEATMAP = "Acceptance rate of a token of the row's model at the column's model; ± is half the 95 % interval"
COSTS = "Time of a forward pass by width (number of new tokens), median with 95 % interval"
MEASURE_TABLE = "Cost and memory of each model"
MEASURE_HEAD = ("Model", "Narrowest pass (median, 95 %)", "Widest pass (median, 95 %)", "Memory it adds")
KIND = "Kind of prompt"
BY_KIND = "Acceptance at {target} by kind of prompt: mean over n prompts, with the 95 % interval where n is {fewest} or more"
MEASURE_NOTE = "Beside the passes, in µs: {overheads}. All models together: {total} of weights."
OVERHEADS, OVERHEAD_ROUNDS = "{target} per target round, {token} per token", "per round of {rounds}"
SETTINGS = "{prompts} ({name}) · context {context} tokens · {sampling} · {environment} · {kernels} · {time} UTC"
KEPT = "Kept measurement of the same models, device, versions, settings and prompts; “Measure again” makes a new one."
FOUND_KEPT = "A kept measurement of {time} was made under the same conditions and is shown ({key}). Tick “Measure again” for a new one."
KERNELS = {
    "compiled": "compiled kernels",
    "compiled-avx2": "compiled kernels (AVX2)",
    "compiled-avx512": "compiled kernels (AVX-512)",
    "torch": "torch kernels",
    "cuda-graphs": "CUDA graphs",
}
PARTIAL_MEASUREMENT = "Measured so far; the numbers still move."
NO_MEASUREMENT = "Nothing measured yet. Press “Measure”."

# Plan
PLAN_BUTTON = "Plan"
PLAN_HELP = "Finds the hierarchy and thresholds with the lowest predicted time per token. “No draft” and “one draft” always compete."
MAX_DEPTH, MAX_THRESHOLD = "Max drafts in the hierarchy", "Max threshold"
MEMORY_LIMIT = "Memory limit in GB (0: none)"
GRAPH = "The hierarchy: a draft hands its block up, the thick path is the plan. α: acceptance; R: rounds per block, at the target per token"
LATENCY = "Predicted time per token of the best hierarchies, with 95 % interval"
STACKED = "Where the time of one token goes"
PATH = "The shortest-path problem behind the plan"
PATH_HELP = (
    "A node is a model that hands up blocks of T tokens, an edge a step of the hierarchy; hover for its multiplier and cost. The thick "
    "path is the shortest under the paper's assumption of independent tokens. The planner refines the best such paths with exact block "
    "lengths and the recorded positions, so its plan may be another one."
)
ALTERNATIVES = "Ranked alternatives"
WHAT_IF = "What if?"
WHAT_IF_HELP = "Move any acceptance rate, cost or threshold; the plan is recomputed at once. Nothing here changes your measurement."
WHAT_IF_EMPTY = "The sliders appear once there is a measurement."
WHAT_IF_RESET = "Back to the measured values"
WHAT_IF_BEST = "Best plan with these numbers"
WHAT_IF_FIXED = "Thresholds as set above"
WHAT_IF_ALONE = "Target alone"
WHAT_IF_SAME = "The plan stays the same."
WHAT_IF_OTHER = "The plan changes; with the measured numbers it is {plan}."
WHAT_IF_RANKED = "Ranked by the exact expression; replayed traces rank {plan} first."
TARGET_ALONE = "target alone"
DRAFTS_BELOW, SPEEDUP = "Drafts below the target", "Speedup over the target alone"
PREDICTED_A_TOKEN, PREDICTED_EXACT = "Predicted per token (95 %)", "Predicted per token, exact expression"
LATENCY_MODELS = {"trace": "Replayed traces", "exact": "Exact expression", "paper": "Paper, Theorem 2.2"}
TIPPING = "What would change the plan?"
TIPPING_HELP = (
    "How far each measured number, alone, is from the value at which other models win. Costs were tried from an eighth to eight times, "
    "acceptance rates from 0 to 1; the nearest come first."
)
TIPPING_HEAD = ("Number", "Measured", "Tips at", "Change", "Then these drafts win")
TIPPING_NONE = "No single cost or acceptance rate within those ranges changes the plan."
ONE_MORE = "What would one more draft bring?"
ONE_MORE_HELP = (
    "Say what a draft that you do not have would cost, and how often larger models would accept its tokens. It stands just below the "
    "smallest model you name; no smaller draft is put below it. Predicted by the exact expression."
)
ONE_MORE_COST, ONE_MORE_RATES, ONE_MORE_BUTTON = "Cost of a pass (ms)", "Acceptance rate at larger models", "Predict"
ONE_MORE_NAME = "new draft"
ONE_MORE_BEFORE, ONE_MORE_AFTER = "Without it", "With it"
ONE_MORE_USED = "The new draft would be used: {times} as fast as without it."
ONE_MORE_UNUSED = "The new draft would not be used: the plan without it is at least as fast."
ONE_MORE_NEEDS = "A plan from a file has no measurement with it; measure here, or load the measurement."
GROWTH = "How does planning itself scale?"
GROWTH_HELP = (
    "Times the planner on made-up problems of 3 to 9 models and thresholds up to 32, on this server. The paper's bound for the general "
    "problem is O(T̄⁴K⁴ log T̄K); here the graph is layered, so one pass over its edges, O(T̄²K²), finds the same path."
)
GROWTH_BUTTON = "Time the planner"
CALCULATOR = "Calculator without any model"
CALCULATOR_HELP = (
    "Type or paste a table: a row for each model, smallest first and the target last, with its cost in milliseconds per pass and its "
    "acceptance rate at each larger model. Commas, semicolons or tabs."
)
CALCULATOR_TABLE, CALCULATE = "Costs (ms) and acceptance rates", "Calculate"
NEED_MEASUREMENT = "Measure first: a plan is made of the costs and acceptance rates of this device. The sample on the page is not yours."
NO_PLAN = "No plan yet. Measure, then plan."

# Generate
GENERATE_BUTTON = "Generate"
STOP_BUTTON = "Stop"
PROMPT = "Prompt"
SYSTEM = "System prompt (optional)"
RAW = "Plain completion (no chat template)"
HIERARCHY = "Hierarchy below the target"
HIERARCHY_INFO = "Smallest first, each as draft@threshold. Empty: the target alone."
VERIFICATION = "Verification rule when sampling"
VERIFICATION_INFO = "Both keep the target's distribution; block verification (Sun et al. 2024) keeps more tokens. Greedy runs need neither."
RULES = {"token": "token by token", "block": "by block"}
MORE_SETTINGS = "System prompt, chat template, verification rule"
MAX_NEW = "Max new tokens"
ALONE = "Also run the target alone"
REPLAY, REPLAY_SLOW = "Replay both on one clock", "Replay at ¼ speed"
PANE_LABEL = "Generated text, coloured by the model that generated each token. Arrow keys step through the tokens."
PANE_EMPTY = "The text appears here, each token in the colour of the model that generated it."
ALONE_LABEL = "Text of the target alone. Arrow keys step through the tokens."
ALONE_EMPTY = "The same prompt with the target alone."
PANE_TITLE, ALONE_TITLE = "Through the hierarchy", "Target alone"
DETAIL_HINT = "Point at a token, tap it, or step with the arrow keys to see where it came from."
STACK = "Stack trace: each target round unfolded into the rounds of the levels below."
STACK_HELP = (
    "Rejected tokens are struck out. Step through it, replay it at reading speed, or click a token above to open its round. "
    "A saved trace is loaded in step 6."
)
STACK_EMPTY = "After a run, each round of the target opens here into the rounds below it."
RUN_SPEEDUP = "as fast as the target alone, this run"
CUE_CORRECTED = "corrected: drawn by the verifier after a rejection"
CUE_BONUS = "bonus: drawn after a fully accepted block"
END_REASONS = {
    "eos": "The model ended its text.",
    "stop_string": "A stop string was reached.",
    "max_new_tokens": "The token limit was reached.",
    "context_full": "The target's context is full.",
    "stopped": "Stopped; what was committed is kept and can be exported.",
    "target_fault": "The target failed; what was committed is kept.",
}
DROPPED = "Draft {model} dropped out: {message} The text stays exact; the rest of the hierarchy goes on."
SAME_TEXT = "Both texts are identical."
OTHER_TEXT = "The texts differ; in lower precision a near-tie can tip. Compare → lossless check names the place and the margin."

# Compare
COMPARE_BUTTON = "Compare"
COMPARE_HELP = (
    "Runs the target alone, the best single draft, the planned hierarchy and transformers' own modes on the same prompts, interleaved."
)
REPEATS, COMPARE_PROMPTS = "Repeats", "Prompts"
LOSSLESS_BUTTON, SWEEP_BUTTON = "Check losslessness", "Sweep many hierarchies"
LOSSLESS_HELP = "Greedy texts of the best hierarchies against the target alone, and a chi-square test of sampled continuations."
SWEEP_HELP = "Predicts and measures about 24 hierarchies on two kinds of prompts; this takes long."
LOSSLESS_LINE = "{cases} greedy cases: {equal} equal, {near} near-ties, {different} different."
SAMPLING_LINE = "{hierarchy}: χ² = {chi:.1f} with {degrees} degrees of freedom over {samples} samples, p = {p:.3f}: {verdict}."
SAMPLING_VERDICT = {True: "the target's distribution", False: "not the target's distribution"}
SWEEP_STOPPED = "Stopped before the sweep was complete; nothing was kept."
SWEEP_LINE = "{count} points, predicted against measured: median error {median}, largest {largest}. {regrets}"
REGRET = "Planned best is {regret} slower than the best measured one ({prompts})."
WITH_TRANSFORMERS = "Include transformers' own modes"
COMPARE_BARS = "Measured tokens per second, median with the spread over repeats; ◇ is the prediction"
COMPARE_SCATTER = "Predicted against measured time per token; on the dashed line a prediction came true"
METHOD, MEASURED_A_TOKEN = "Method", "Measured per token"
COMPARE_HEAD = (
    "Tokens/s, spread",
    "Predicted tokens/s",
    "Speedup over the target",
    "Tokens per target pass",
    "Same text",
    "Outside rounds",
)
MODELS_CAPTION = "Latency models side by side: predicted time per token, with its error against the measured median"
LOSSLESS_TITLE, SWEEP_TITLE = "Is it lossless?", "Do predictions come true?"
SWEEP_PLOT = "Every hierarchy of the sweep: predicted with 95 % interval against measured with the spread over repeats"
RANKS = " (ranks the plans)"
SWEEP_HEAD = ("Latency model", "Median error", "Largest error")
COMPARE_TABLE = "Methods, slowest to fastest"
NO_COMPARISON = "Nothing compared yet. Plan first, then press “Compare”."
NEED_PLAN = "Plan first: a comparison runs the planned hierarchy against the target alone."
OTHER_TARGET = "The plan is for {planned}, the target picked is {picked}; measure and plan with that target."
MORE = "and {count} more"
METHODS = {
    "target": "target alone",
    "hierarchy": "planned hierarchy",
    "best-single": "best single draft",
    "transformers": "transformers generate",
    "transformers-prompt-lookup": "transformers + prompt lookup",
    "transformers-assistant": "transformers + assistant",
}
IDENTICAL_YES = "Every text of this engine equals the target's own text."
OTHER_ARITHMETIC = "transformers adds up in another order than this engine; its texts first depart at:"
IDENTICAL_NEAR = "Differences only at near-ties of {dtype} rounding; not the same as equal."
IDENTICAL_NO = "Some texts differ from the target's own text beyond a near-tie. That is a fault: please report it."
IDENTICAL_OPEN = "Some texts differ from the target's own text; it is not known whether they do so at near-ties."
IDENTICAL_SAMPLED = "Sampled texts are not compared one by one; the distribution tests stand in for that."

# Export
EXPORT_HELP = (
    "Take the result with you: a measurement, plan or trace, which this program reads again below; a comparison; a report; "
    "or a snippet for another engine."
)
EXPORT_KIND, EXPORT_BUTTON, DOWNLOAD = "What", "Show", "Download"
EXPORT_PREVIEW = "Preview"
KINDS = {
    "measurement": "Measurement (JSON)",
    "plan": "Plan (JSON)",
    "trace": "Trace of the last generation (JSON)",
    "comparison": "Comparison (JSON)",
    "report": "Report (HTML, one file)",
    "report-markdown": "Report (Markdown)",
    "python": "Snippet: this library",
    "transformers": "Snippet: transformers",
    "vllm": "Snippet: vLLM",
    "llama.cpp": "Snippet: llama.cpp",
    "sglang": "Snippet: SGLang",
}
EXPORTED = "{kind}: shown below, ready to download."
LOAD_FILE = "Load a measurement, plan or trace file"
LOADED = {
    "measurement": "Loaded the measurement; see steps 2 and 3.",
    "plan": "Loaded the plan; see step 3.",
    "trace": "Loaded the trace; see step 4, where it can be stepped through and replayed.",
}
LOAD_UNKNOWN = "This file is neither a measurement, nor a plan, nor a trace of this program: only those three are read again."
LOAD_COMPARISON = "A comparison is exported to be kept, and is not read again: only a measurement, a plan or a trace is."
LOAD_NOT_JSON = "This file is not JSON; choose a measurement, plan or trace that was exported here."
FETCH = "Fetch a run again by its id"
FETCH_BUTTON = "Fetch"
FETCH_INFO = (
    "Results stay on the server for a while under the id in the status line: a generation shows it from its start, the others at their end."
)
FETCHED = "Fetched {kind} {key}."
FETCH_UNKNOWN = "No result with that id is kept here: it was never finished, was made on another server, or has been forgotten."
NOTHING_TO_EXPORT = "There is no {kind} yet; {how}."
HOW = {
    "measurement": "measure first",
    "plan": "plan first",
    "trace": "generate something first",
    "comparison": "compare first",
}

# Hero
HERO_PLANNED, HERO_MEASURED = "planned {times}", "measured {times} ({low}–{high}, n={count})"
HERO_MEDIANS = "measured {times} (medians, n={count})"
HERO_ONE_RUN = "measured {times} in one run"
HERO_NOT_MEASURED = "not compared yet"
HERO_NO_DRAFT = "the target alone is fastest here"
HERO_IDENTICAL = "output identical to the target: {verdict}"
HERO_EMPTY = "Measure this device to get your answer."
VERDICTS = {True: "yes", False: "no", None: "not checked"}
RECORDED = "Recorded sample, not your device: {environment}, {time}. Press “Measure” for yours."
YOURS = "Measured here: {environment}"
LOADED_FROM = "From a file, measured on {environment}, {time}. Press “Measure” for this device."
