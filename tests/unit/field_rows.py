"""The field's catalogue of failures and traps: each kind with a line as a server prints it, and the entry that knows it.

ROWS: number of the row, id of the signature, line. TRAPS: number of the trap, line: nothing may take it for a failure.
SILENT: rows that no line tells, with the reason.
"""
# ruff: noqa: E501

from __future__ import annotations

_W = "(Worker_TP0 pid=9) ERROR 11-30 05:00:00 [multiproc_executor.py:953] "
_C = "(EngineCore pid=3) ERROR 11-30 05:00:00 [core.py:1512] "
_A = "(APIServer pid=7) ERROR 11-30 05:00:00 [launcher.py:99] "
_S = "[2026-11-30 05:00:00 TP0] "
_N = "[2026-11-30 05:00:00] "

WRAPPERS: tuple[str, ...] = (
    "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}",
    "RuntimeError: Frontend process failed during engine core initialization. See root cause above.",
    _C
    + "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.",
    _C + "EngineCore failed to start.",
    _C + "EngineCore encountered a fatal error.",
    _W + "WorkerProc hit an exception.",
    _C + "RuntimeError: Worker failed with error 'boom', please check the stack trace above for the root cause",
    _A
    + "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    _C + "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.",
    _A + "RuntimeError: Process ApiServer_0 (PID: 7) died with exit code 1",
    _A + "Engine core process EngineCore_DP0 died unexpectedly. Shutting down client.",
    _C + "RuntimeError: Executor failed.",
    _A + "[shutdown] MPClient: engine core exited unexpectedly",
    _N + "Received sigquit from a child process. It usually means the child failed.",
    _N + "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    _N + "Subprocess scheduler_0 (pid=4711) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
    _N + "Rank 0 scheduler died during initialization (exit code: -9).",
    "RuntimeError: Initialization failed. Please see the error messages above.",
    _S + "Scheduler hit an exception: Traceback (most recent call last):",
    _N + "DetokenizerManager hit an exception: Traceback (most recent call last):",
    _N + "TokenizerManager hit an exception: Traceback (most recent call last):",
    _N + "DataParallelController hit an exception: Traceback (most recent call last):",
    _N + "MultiTokenizerRouter hit an exception: Traceback (most recent call last):",
    "RuntimeError: cancelled",
    "asyncio.exceptions.CancelledError",
    "KeyboardInterrupt: terminated",
    # Older releases.
    "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
    "vllm.engine.async_llm_engine.AsyncEngineDeadError: Background loop has errored already.",
    "vllm.engine.multiprocessing.MQEngineDeadError: Engine loop is not running. Inspect the stacktrace to find the original error: X().",
    "ERROR 11-30 05:00:00 [core.py:383] EngineCore hit an exception: Traceback (most recent call last):",
    "CRITICAL 11-30 05:00:00 [core_client.py:191] Got fatal signal from worker processes, shutting down. See stack trace above for root cause issue.",
    "ERROR 11-30 05:00:00 worker_base.py:464] Error executing method init_device. This might cause deadlock in distributed execution.",
)
"""What is printed last and is never the cause."""

ROWS: tuple[tuple[int, str, str], ...] = (
    # Memory of the GPU.
    (1, "cuda-out-of-memory", _W + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 254.00 MiB."),
    (2, "cuda-out-of-memory", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB."),
    (
        3,
        "cuda-out-of-memory",
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity)",
    ),
    (4, "sglang-graph-capture-failed", "Exception: Capture cuda graph failed: invalid device function"),
    (4, "sglang-graph-capture-failed", "Exception: Capture prefill CUDA graph failed: invalid device function"),
    (
        5,
        "vllm-gpu-not-free",
        _C
        + "ValueError: Free memory on device cuda:0 (39.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.19 GiB).",
    ),
    (
        6,
        "vllm-weights-held-elsewhere",
        "ValueError: Externally held weights on device cuda:0 (60.1/79.1 GiB) exceed the desired GPU memory utilization",
    ),
    (
        7,
        "vllm-memory-changed-while-profiling",
        "AssertionError: Error in memory profiling. Initial free memory 60.1 GiB, current free memory 70.2 GiB.",
    ),
    (
        8,
        "vllm-no-kv-memory",
        _C
        + "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
    ),
    (
        9,
        "vllm-context-does-not-fit",
        _C
        + "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (7.61 GiB). Based on the available memory, the estimated maximum model length is 62336.",
    ),
    (
        10,
        "vllm-sampler-out-of-memory",
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
    ),
    (
        11,
        "sglang-pool-too-small",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.6",
    ),
    (12, "sglang-pool-too-small", "ValueError: The SWA pool of 100 tokens cannot hold even one request."),
    (13, "sglang-token-pool-exhausted", "RuntimeError: Decode out of memory. Try to lower your batch size."),
    (13, "sglang-token-pool-exhausted", "RuntimeError: Prefill out of memory. Try to lower your batch size."),
    (
        14,
        "sglang-token-pool-exhausted",
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.",
    ),
    (15, "sglang-pool-leak", "ValueError: req_to_token_pool memory leak detected! available_size=1, total_size=2"),
    (16, "cuda-driver-out-of-memory", "RuntimeError: CUDA error: out of memory"),
    (18, "cuda-out-of-memory", _W + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    # Weights, config, arguments.
    (19, "weight-unknown-to-model", _W + "KeyError: 'layers.0.mlp.gate_up_proj.weight_scale'"),
    (
        20,
        "vllm-no-such-parameter",
        _W
        + "ValueError: There is no module or parameter named 'extra' in LlamaForCausalLM. The available parameters are: {}",
    ),
    (
        21,
        "vllm-weights-missing",
        _W + "ValueError: Following weights were not initialized from checkpoint: {'model.norm.weight'}",
    ),
    (
        22,
        "weight-does-not-fit-parameter",
        _S + "AssertionError: Attempted to load weight (torch.Size([128])) into parameter (torch.Size([256]))",
    ),
    (23, "weight-shape-mismatch", "    assert param_data.shape == loaded_weight.shape"),
    (
        23,
        "weight-shape-mismatch",
        "\tsize mismatch for model.weight: copying a param with shape torch.Size([2]) from checkpoint",
    ),
    (
        23,
        "weight-shape-mismatch",
        "RuntimeError: The size of tensor a (128) must match the size of tensor b (256) at non-singleton dimension 0",
    ),
    (24, "no-weights-found", _W + "RuntimeError: Cannot find any model weights with `/models/x`"),
    (
        25,
        "weights-file-damaged",
        "safetensors._safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
    ),
    (
        25,
        "weights-file-damaged",
        "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
    ),
    (
        25,
        "weights-file-damaged",
        "safetensors_rust.SafetensorError: Error while deserializing header: InvalidHeaderDeserialization",
    ),
    (
        26,
        "architecture-not-supported",
        "  Value error, Model architectures ['FooForCausalLM'] are not supported for now. Supported architectures: dict_keys([]) [type=value_error]",
    ),
    (
        27,
        "architecture-not-inspected",
        "  Value error, Model architectures ['FooForCausalLM'] failed to be inspected. Please check the logs for more details. [type=value_error]",
    ),
    (
        28,
        "architecture-not-supported",
        "  Value error, Model architecture ['FooForCausalLM'] was supported in vLLM until v0.10.2, and is not supported anymore. [type=value_error]",
    ),
    (
        29,
        "model-type-unknown",
        "ValueError: The checkpoint you are trying to load has model type `foo` but Transformers does not recognize this architecture.",
    ),
    (30, "trust-remote-code", "ValueError: Please set the option `trust_remote_code=True` to remove this error."),
    (
        31,
        "quantization-unknown",
        "  Value error, Unknown quantization method: foo. Must be one of ['awq'] [type=value_error]",
    ),
    (
        32,
        "quantization-mismatch",
        "ValueError: Quantization method specified in the model config (awq) does not match the quantization method specified in the `quantization` argument (gptq).",
    ),
    (
        33,
        "quantization-needs-other-gpu",
        "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 89. Current capability: 80.",
    ),
    (
        34,
        "quantization-needs-other-dtype",
        "ValueError: torch.bfloat16 is not supported for quantization method awq. Supported dtypes: [torch.float16]",
    ),
    (
        35,
        "vllm-heads-not-divisible",
        "  Value error, Total number of attention heads (4) must be divisible by tensor parallel size (3). [type=value_error]",
    ),
    (36, "not-divisible", _S + "AssertionError: 28 is not divisible by 8"),
    (36, "sglang-not-divisible", "AssertionError: tp_size must be divisible by number of nodes"),
    (
        37,
        "vllm-too-few-gpus",
        "  Value error, World size (8) is larger than the number of available GPUs (4) in this node. [type=value_error]",
    ),
    (38, "vllm-too-few-gpus", _W + "AssertionError: DP adjusted local rank 4 is out of bounds. "),
    (
        39,
        "vllm-max-model-len",
        "  Value error, User-specified max_model_len (100000) is greater than the derived max_model_len (max_position_embeddings=2048.0 or model_max_length=None in model's config.json). [type=value_error]",
    ),
    (
        40,
        "sglang-context-length",
        "ValueError: User-specified context_length (200000) is greater than the derived context_length (131072).",
    ),
    (
        41,
        "vllm-bfloat16-unsupported",
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has compute capability 7.5.",
    ),
    (
        42,
        "vllm-no-device",
        "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`",
    ),
    (
        43,
        "sglang-no-accelerator",
        "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available.",
    ),
    (44, "vllm-unknown-parser", "KeyError: 'invalid tool call parser: foo (chose from { hermes,llama3_json })'"),
    (45, "vllm-unknown-parser", "KeyError: \"Reasoning parser 'foo' not found.\""),
    (46, "argparse-error", "vllm: error: unrecognized arguments: --no-such-flag"),
    (
        46,
        "argparse-error",
        "launch_server.py: error: argument --dtype: invalid choice: 'fp7' (choose from 'auto', 'half')",
    ),
    (47, "vllm-port-is-a-uri", "ValueError: VLLM_PORT 'tcp://10.0.0.1:8000' appears to be a URI."),
    (
        48,
        "vllm-dp-mismatch",
        "RuntimeError: Configuration mismatch detected for engine 1. All DP workers must have identical configurations.",
    ),
    (
        49,
        "sglang-package-too-old",
        "Exception: sgl-kernel is installed with version 0.2.3, which is less than the minimum required version 0.4.0.",
    ),
    (
        50,
        "ray-too-few-gpus",
        "ValueError: The number of required GPUs exceeds the total number of available GPUs in the placement group.",
    ),
    (52, "tokenizer-unusable", "OSError: Can't load tokenizer for 'x/y'."),
    (52, "tokenizer-unusable", "ValueError: Couldn't instantiate the backend tokenizer from one of: "),
    (
        52,
        "tokenizer-unusable",
        "Exception: data did not match any variant of untagged enum ModelWrapper at line 250 column 3",
    ),
    (53, "vllm-nan-logits", "(Worker pid=9) WARNING 11-30 05:00:00 [utils.py:56] NaNs detected in logits"),
    # Distributed, NCCL.
    (
        54,
        "nccl-cuda-error",
        "torch.distributed.DistBackendError: NCCL error in: /x.cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5",
    ),
    (
        55,
        "nccl-system-error",
        "torch.distributed.DistBackendError: NCCL error in: /x.cpp:77, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.5",
    ),
    (
        57,
        "nccl-peer-gone",
        "torch.distributed.DistBackendError: NCCL error in: /x.cpp:77, remote process exited or there was a network error, NCCL version 2.27.5",
    ),
    (
        58,
        "nccl-shared-memory-full",
        "host:1:1 [0] include/alloc.h:1 NCCL WARN Error: failed to extend /dev/shm/nccl-JjpRwh to 33030532 bytes, error: No space left on device (28)",
    ),
    (
        59,
        "collective-timeout",
        "[rank0]:[E1130 05:00:00.100 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
    ),
    (
        61,
        "rendezvous-port-taken",
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29501, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    ),
    (
        62,
        "rendezvous-timeout",
        "torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 29501).",
    ),
    (64, "custom-all-reduce-failed", "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:455 'invalid argument'"),
    (
        65,
        "cuda-illegal-address",
        "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:164 'an illegal memory access was encountered'",
    ),
    (
        66,
        "sglang-gpus-unbalanced",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=10",
    ),
    # Ports, sockets.
    (67, "address-in-use", "OSError: [Errno 98] Address already in use"),
    (
        68,
        "address-in-use",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address already in use",
    ),
    (69, "address-in-use", "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:5557')"),
    (
        70,
        "sglang-port-not-free",
        "ValueError: rpc_port at 20002 is not available in 30 seconds. Port 20002 is used by a process already.",
    ),
    (70, "sglang-port-not-free", "ValueError: Port is already in use. dist_init_port=20000"),
    (72, "address-in-use", "OSError: [Errno 98] Address already in use"),
    # Hub, download.
    (106, "hub-gated", "OSError: You are trying to access a gated repo."),
    (106, "hub-gated", "huggingface_hub.errors.GatedRepoError: 403 Client Error. (Request ID: Root=1)"),
    (106, "hub-gated", "Cannot access gated repo for url https://huggingface.co/x/y/resolve/main/config.json."),
    (
        107,
        "hub-rate-limited",
        "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: https://huggingface.co/x",
    ),
    (
        108,
        "model-not-found",
        "OSError: foo/bar is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
    ),
    (
        109,
        "hub-offline-incomplete",
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision on the local disk and outgoing traffic has been disabled.",
    ),
    (
        109,
        "hub-offline-incomplete",
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in the cached files.",
    ),
    (
        110,
        "hub-waits-for-lock",
        "Still waiting to acquire lock on /root/.cache/huggingface/hub/.locks/models--x/abc.lock (elapsed: 20.0 seconds)",
    ),
    # Time-outs.
    (
        111,
        "vllm-engine-start-timeout",
        "TimeoutError: Timed out waiting for engine core processes to start. This is often caused by slow weight loading for large models. Waited 600s (configured by VLLM_ENGINE_READY_TIMEOUT_S).",
    ),
    (
        112,
        "vllm-front-end-silent",
        _C + "RuntimeError: Did not receive response from front-end process within 5 minutes",
    ),
    (113, "vllm-rpc-timeout", _C + "TimeoutError: RPC call to execute_model timed out."),
    (115, "sglang-watchdog-timeout", _S + "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"),
    (
        116,
        "sglang-health-check-failed",
        _N
        + "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: 05:00:00.",
    ),
    (117, "sglang-warmup-failed", _N + "Initialization failed. warmup error: Traceback (most recent call last):"),
    (118, "sglang-weights-not-ready", _N + "Weights are not ready after waiting 120 seconds."),
    (
        17,
        "ggml-buffer-not-allocated",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 23552.00 MiB on device 0: cudaMalloc failed: out of memory",
    ),
    (
        56,
        "nccl-invalid-usage",
        _W
        + "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.21.5",
    ),
    (
        60,
        "collective-timeout",
        "[rank3]:[F1130 05:00:00.123456789 ProcessGroupNCCL.cpp:1575] [PG ID 0 PG GUID 0 Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.",
    ),
    (71, "address-in-use", "srv          start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080"),
    (73, "cuda-illegal-address", _W + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
    (74, "cuda-device-assert", _W + "torch.AcceleratorError: CUDA error: device-side assert triggered"),
    (75, "cuda-launch-failure", _W + "RuntimeError: CUDA error: unspecified launch failure"),
    (76, "gpu-ecc-error", _W + "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    (77, "no-kernel-image", _W + "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    (78, "gpu-busy", _W + "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"),
    (
        79,
        "fabric-not-up",
        _W
        + "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
    ),
    (80, "driver-too-old", _W + "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)."),
    (
        81,
        "driver-library-mismatch",
        _W + "pynvml.NVMLError_LibRmVersionMismatch: RM has detected an NVML/RM version mismatch.",
    ),
    (
        82,
        "xid-gpu-gone",
        "Nov 30 05:00:00 node5 kernel: NVRM: Xid (PCI:0000:c1:00): 79, pid=4711, name=VLLM::Worker, GPU has fallen off the bus.",
    ),
    (83, "native-crash", "Fatal Python error: Segmentation fault"),
    (
        84,
        "out-of-host-memory",
        "Nov 30 05:00:00 node5 kernel: Out of memory: Killed process 4711 (VLLM::Worker_TP) total-vm:412345678kB, anon-rss:98765432kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0",
    ),
    (85, "no-space-left", _W + "OSError: [Errno 28] No space left on device"),
    (86, "too-many-open-files", _W + "OSError: [Errno 24] Too many open files"),
    (87, "no-more-threads", _W + "RuntimeError: can't start new thread"),
    (
        88,
        "vllm-shm-full",
        _W
        + "RuntimeError: Insufficient space in /dev/shm for the message queue: 240 MiB required, 61 MiB free. Increase /dev/shm (e.g. --shm-size or --ipc=host).",
    ),
    (
        89,
        "cuda-after-fork",
        _W
        + "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method",
    ),
    (
        90,
        "spawn-without-main-guard",
        "RuntimeError: An attempt has been made to start a new process before the current process has finished its bootstrapping phase.",
    ),
    (91, "lock-of-another-user", _W + "PermissionError: [Errno 13] Permission denied: '/tmp/0a1b2cmodels-tiny.lock'"),
    (
        92,
        "binary-mismatch",
        _W
        + "ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by /opt/venv/lib/python3.11/site-packages/vllm/_C.abi3.so)",
    ),
    (93, "breakpoint-left-behind", _W + "bdb.BdbQuit"),
    (
        94,
        "nvcc-missing",
        _W + "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist",
    ),
    (95, "jit-build-failed", _W + "RuntimeError: Ninja build failed. Ninja output:"),
    (96, "nvcc-missing", "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found"),
    (
        97,
        "c-compiler-missing",
        _W
        + "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl.",
    ),
    (98, "ptxas-too-old", "ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'"),
    (
        99,
        "triton-shared-memory",
        _W
        + "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.",
    ),
    (100, "flashinfer-old-gpu", _W + "RuntimeError: FlashInfer requires GPUs with sm75 or higher"),
    (
        101,
        "vllm-compile-cache-corrupt",
        _W
        + "RuntimeError: vLLM failed to compile the model. The most likely reason for this is that a previous compilation failed, leading to a corrupted compilation artifact. We recommend trying to remove ~/.cache/vllm/torch_compile_cache",
    ),
    (102, "vllm-compile-cache-corrupt", _W + "AssertionError: Expected tensors only, but got: <class 'int'>"),
    (103, "vllm-compile-hash-lost", _W + "AssertionError: failed to get the hash of the compiled graph"),
    (104, "inductor-failed", _W + "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:"),
)

TRAPS: tuple[tuple[int, str], ...] = (
    (
        1,
        "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked shared_memory objects to clean up at shutdown",
    ),
    (
        2,
        "[rank0]:[W1130 05:00:00.1 ProcessGroupNCCL.cpp:1496] Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources.",
    ),
    (
        3,
        '[rank1]:[W1130 05:00:00.1 ProcessGroupNCCL.cpp:1659] [PG ID 0 PG GUID 0 Rank 1] Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early), with error: Broken pipe',
    ),
    (
        3,
        "[rank1]:[W1130 05:00:00.1 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=77, addr=[localhost]:1): Broken pipe",
    ),
    (
        4,
        "(Worker_TP0 pid=9) WARNING 11-30 05:00:00 [custom_all_reduce.py:190] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.",
    ),
    (
        5,
        _S
        + "Setup Custom allreduce failed with CUDA error: invalid argument. To silence this warning, specify --disable-custom-all-reduce explicitly.",
    ),
    (6, _N + "Ignore import error when loading sglang.srt.models.foo: No module named 'timm'"),
    (7, "(APIServer pid=7) INFO 11-30 05:00:00 [network_utils.py:248] Port 8001 is already in use, trying port 8002"),
    (8, "(APIServer pid=7) WARNING 11-30 05:00:00 [parallel.py:750] Address already in use. Retrying with a new port."),
    (
        9,
        "(APIServer pid=7) WARNING 11-30 05:00:00 [system_utils.py:155] We must use the `spawn` multiprocessing start method. Overriding VLLM_WORKER_MULTIPROC_METHOD to 'spawn'. Reasons: CUDA is initialized",
    ),
    (
        10,
        "(EngineCore pid=3) INFO 11-30 05:00:00 [shm_broadcast.py:871] No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are hanging",
    ),
    (
        11,
        "(Worker pid=9) WARNING 11-30 05:00:00 [pynccl_allocator.py:101] Failed to compile NCCL memory allocator. Symmetric memory will be disabled.",
    ),
    (
        12,
        "(APIServer pid=7) WARNING 11-30 05:00:00 [utils.py:319] FooForCausalLM has no vLLM implementation, falling back to Transformers implementation.",
    ),
    (12, _N + "FooForCausalLM has no SGLang implementation, falling back to Transformers implementation."),
    (
        13,
        "(EngineCore pid=3) INFO 11-30 05:00:00 [gpu_worker.py:1045] Free memory on device (78.5/79.1 GiB) on startup. Desired GPU memory utilization is (0.9, 71.19 GiB).",
    ),
    (14, _N + "Health check request received during shutdown. Returning 503."),
    (15, _N + "kill_process_tree called: parent_pid=4711, include_parent=False, pid=4711"),
    (
        16,
        "(APIServer pid=7) WARNING 11-30 05:00:00 [utils.py:653] [shutdown] Process manager: force killing remaining process EngineCore pid 5103",
    ),
    (17, "(Worker pid=9) INFO 11-30 05:00:00 [multiproc_executor.py:1078] WorkerProc was terminated"),
    (
        17,
        "(Worker pid=9) INFO 11-30 05:00:00 [multiproc_executor.py:944] Parent process exited, terminating worker queues",
    ),
    (18, "ERROR:    Exception in ASGI application"),
    (
        19,
        _S
        + "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. pre_model_load_memory=10",
    ),
    (
        20,
        "(APIServer pid=7) WARNING 11-30 05:00:00 [system_utils.py:279] Found ulimit of 1024 and failed to automatically increase with error [Errno 1] Operation not permitted. This can cause fd limit errors like `OSError: [Errno 24] Too many open files`.",
    ),
    (
        21,
        "/x/launch_server.py:72: UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended entrypoint.",
    ),
    (22, _N + "SIGTERM received. signum=15 frame=<frame>. Draining requests and shutting down..."),
    (23, "(RayWorkerWrapper pid=9) *** SIGTERM received at time=1764480000 on cpu 3 ***"),
    (24, "[Gloo] Rank 0 is connected to 0 peer ranks. Expected number of connected peer ranks is : 0"),
    (25, "UserWarning: TORCH_CUDA_ARCH_LIST is not set, all archs for visible cards are included for compilation."),
    (
        26,
        "(EngineCore pid=3) INFO 11-30 05:00:00 [watch_dog.py:96] [Watchdog]Dumped stack to VLLM_STACK_DUMP_for_EngineCore_3.log",
    ),
    (27, "host:77:99 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 busId 1000 - Abort COMPLETE"),
    (27, "host:77:99 [0] NCCL INFO [Service thread] Connection closed by localRank 1"),
    (28, "Exception ignored in: <function LLM.__del__ at 0x7f0000000000>"),
    (28, "Error in atexit callback"),
    (
        29,
        "INFO 11-30 05:00:00 [logger.py:39] Received request cmpl-1: prompt: 'RuntimeError: CUDA out of memory. Tried to allocate 2 GiB'",
    ),
    (
        29,
        _N
        + "Receive: obj=GenerateReqInput(text='Traceback (most recent call last): ValueError: No available memory for the cache blocks.')",
    ),
    (30, "(APIServer pid=7) INFO 11-30 05:00:00 [core_client.py:770] [shutdown] MPClient: start timeout=0s"),
)

SILENT: dict[int, str] = {
    51: "one request gets status 400, nothing fails",
    63: "a hang inside NCCL prints nothing",
    105: "a stale lock of a build is waited for in silence",
    114: "a hint only; it is trap 10",
    119: "the rank that is gone is on another machine; this one waits in silence",
    120: "a hang prints nothing",
}
