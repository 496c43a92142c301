"""How far a process had come, by the functions that its traceback goes through: also where a log has no milestones."""

from __future__ import annotations

import re

_FUNCTION = re.compile(r'\s*File "[^"]*", line \d{1,9},? in (?P<name>\w+)$')

# The engines' functions, outermost first within a phase. vLLM 0.6 to 0.33 and its plugins for other devices, SGLang 0.3
# to 0.5. An inner one tells more exactly than an outer one: what runs once to measure memory runs later for requests.
_STAGES = {
    "config": "create_engine_config create_model_config _validate_config",
    "engine": "run_engine_core worker_main _init_executor init_worker init_device run_scheduler_process",
    "distributed": (
        "init_worker_distributed_environment init_distributed_environment init_process_group init_torch_distributed "
        "initialize_model_parallel ensure_model_parallel_initialized ncclCommInitRank init_model_parallel "
        "initialize_ray_cluster _wait_until_pg_ready"
    ),
    "weights": "load_model initialize_model load_weights load_all_weights init_lora_manager",
    "profile": "determine_available_memory determine_num_available_blocks profile_run profile_max_num_token",
    "kv cache": (
        "_initialize_kv_caches raise_if_cache_size_invalid check_enough_kv_cache_memory _check_enough_kv_cache_memory "
        "get_kv_cache_spec get_kv_cache_specs get_kv_cache_configs get_kv_cache_config initialize_from_config "
        "initialize_kv_cache initialize_cache init_memory_pool init_cache_engine init_memory_pool_and_cache "
        "init_cache_with_memory_pool"
    ),
    "warm-up": (
        "compile_or_warm_up_model kernel_warmup warm_up_model _warm_up_model _dummy_sampler_run _dummy_pooler_run"
    ),
    "graphs": (
        "capture_model _capture_model _capture_cudagraphs _capture_aclgraphs capture_graph capture_one_batch_size "
        "init_device_graphs init_cuda_graphs init_decode_cuda_graph"
    ),
    "run": (
        "run_busy_loop _process_engine_step output_handler run_engine_loop engine_step event_loop_normal "
        "event_loop_overlap event_loop_normal_disagg_prefill event_loop_normal_disagg_decode "
        "event_loop_overlap_disagg_prefill event_loop_overlap_disagg_decode event_loop_pp event_loop_pp_disagg_prefill "
        "event_loop_pp_disagg_decode process_batch_result get_next_batch_to_run process_input_requests "
        "forward_thread_func forward_thread_func_ "
        # Trainers that have an engine generate for them: verl, OpenRLHF, slime.
        "fit update_actor update_policy generate_sequences compute_log_prob training_step generate_rollout"
    ),
}
_PHASES = {name: phase for phase, names in _STAGES.items() for name in names.split()}


# They run a batch: for a request, unless what measures memory or captures graphs has called them.
_BATCHES = frozenset({"execute_model", "start_worker_execution_loop", "_run_engine"})


def stage_around(text: str, inside: str | None = None) -> str | None:
    """Read a phase from a frame of a stack that is printed innermost first.

    Args:
        text: a line of the stack.
        inside: the phase that the frames inside of it told.

    Returns:
        What `stage_of` would, had it read the stack from its other end.
    """
    found = _FUNCTION.match(text)
    phase = _PHASES.get(found["name"]) if found else None
    return phase if phase == "run" else inside or phase


def stage_of(text: str, before: str | None = None) -> str | None:
    """Read a phase from a frame.

    Args:
        text: a line of a traceback.
        before: the phase that the frames outside of it told.

    Returns:
        The phase in which only the function is called that the frame is in, or else the one before.
    """
    found = None if before == "run" else _FUNCTION.match(text)
    if found is None:
        return before
    if found["name"] in _BATCHES and before in (None, "engine"):
        return "run"
    return _PHASES.get(found["name"], before)
