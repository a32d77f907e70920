"""Texts of CUDA, NCCL and PyTorch: memory, devices, and ranks that cannot talk to each other."""

from functools import partial
from typing import Final

from schemas.executor.attempts import FailureKind
from shared.known_failure import Known, known_failure

_gpu_unavailable = partial(known_failure, FailureKind.GPU_UNAVAILABLE)

SHARED_MEMORY: Final = known_failure(
    FailureKind.OUT_OF_MEMORY,
    "the container's shared memory is too small for the engine's processes",
    "give it more than Docker's 64 MiB: `docker run --shm-size=16g` or `--ipc=host`, in "
    "Kubernetes an emptyDir of medium Memory at /dev/shm",
    pattern=(
        r"creating shared memory segment|insufficient shared memory \(shm\)"
        r"|killed by signal: bus error|/dev/shm/.*no space left on device"
    ),
    example=(
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-cjY8K5 (size "
        "10617216), error: No space left on device (28)"
    ),
    source="NCCL 2.x; PyTorch's DataLoader",
)

MEMORY: Final[tuple[Known, ...]] = (
    _gpu_unavailable(
        "another process holds memory of the granted GPU",
        "`nvidia-smi` names it; `gpusteward drift` shows what nobody has reserved; on a GPU that "
        "is shared on purpose lower gpu-memory-utilization",
        pattern=(
            r"free memory on device .*on startup is less than desired GPU memory utilization"
            r"|error in memory profiling.*other processes|GPUs may be occupied by other processes"
        ),
        example=(
            "ValueError: Free memory on device cuda:0 (12.18/23.56 GiB) on startup is less than "
            "desired GPU memory utilization (0.92, 21.67 GiB)."
        ),
        source="vLLM 0.9 and newer, and its memory profiling before; SGLang",
    ),
    known_failure(
        FailureKind.GPU_OUT_OF_MEMORY,
        "the weights fit into the GPU's memory, but no cache for the requests beside them",
        "raise gpu-memory-utilization (vLLM) or mem-fraction-static (SGLang), lower max-model-len "
        "or context-length, or use more GPUs",
        pattern=(
            r"no available memory for the cache blocks|larger than the available KV cache memory"
            r"|number of tokens that can be stored in KV cache|try to increase --mem-fraction"
        ),
        example="ValueError: No available memory for the cache blocks.",
        source="vLLM 0.2 and newer; SGLang",
    ),
    known_failure(
        FailureKind.GPU_OUT_OF_MEMORY,
        "PaddlePaddle's growing allocator got no memory of the GPU",
        "on a virtual GPU (GPU-Manager) the two manage memory against each other: set "
        "FLAGS_allocator_strategy=naive_best_fit in the engine's environment and restart it; on a "
        "whole GPU use more of them, or smaller batches",
        pattern=(
            r"ResourceExhaustedError:.*out of memory error on GPU"
            r"|out of memory error on GPU \d+\. Cannot allocate|AutoGrowthBestFitAllocator"
        ),
        example=(
            "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 1.000000GB "
            "memory on GPU 0, 14.5GB memory has been allocated and available memory is only 0.5GB."
        ),
        source="PaddlePaddle 2.x; accelerator guide, Paddle Autogrow Memory Allocation Crash",
    ),
    known_failure(
        FailureKind.GPU_OUT_OF_MEMORY,
        "the GPU's memory is full",
        "use more GPUs (tensor-parallel-size), a shorter context, fewer sequences at once, a "
        "quantized model, or leave more aside for CUDA graphs (gpu-memory-utilization lower)",
        pattern=(
            r"(cuda|hip)( driver| runtime)?( error)?: out of memory|(cuda|hip) out of memory"
            r"|torch\.OutOfMemoryError|ErrorOutOfDeviceMemory|hipErrorOutOfMemory"
            r"|cuda failure 2\b|HSA_STATUS_ERROR_OUT_OF_RESOURCES|CUDNN_STATUS_ALLOC_FAILED"
            r"|cuda\.OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
            r"|cudaMalloc failed|failed to allocate (CUDA|ROCm|Vulkan)\d* buffer"
            r"|unable to allocate (CUDA|ROCm|Vulkan)\d* buffer|CUBLAS_STATUS_ALLOC_FAILED"
            r"|out of memory error on GPU"
        ),
        example=(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a "
            "total capacity of 23.56 GiB of which 512.00 MiB is free."
        ),
        source="PyTorch, llama.cpp (ggml: CUDA, ROCm, Vulkan), cuBLAS, NCCL, ROCm",
    ),
    known_failure(
        FailureKind.OUT_OF_MEMORY,
        "the kernel ended a process because host or container had no memory left",
        "allow it more memory, or let the engine use less (swap-space, cpu-offload-gb, workers); "
        "`sudo dmesg | grep -i 'killed process'` names who was ended",
        pattern=r"out of memory: killed process|oom-kill|OOMKilled|invoked oom-killer",
        example="Memory cgroup out of memory: Killed process 8151 (python3) total-vm:48211104kB",
        source="Linux; Docker and kubelet (OOMKilled)",
    ),
    known_failure(
        FailureKind.OUT_OF_MEMORY,
        "the engine could not get memory of the host",
        "allow it more memory, or let it use less (swap-space, cpu-offload-gb, ctx-size); "
        "`free -h` and `ulimit -v` show what there is",
        pattern=(
            r"std::bad_alloc|\bMemoryError\b|cannot allocate memory|DefaultCPUAllocator"
            r"|failed to allocate (CPU )?buffer|ggml_aligned_malloc|\bENOMEM\b"
            r"|^(?!.*(cuda|hip|gpu|vram|device|vulkan|rocm|nccl)).*out of memory"
        ),
        example="terminate called after throwing an instance of 'std::bad_alloc'",
        source="libstdc++, CPython, PyTorch, llama.cpp (ggml)",
    ),
)

ABSENT_DEVICES: Final[tuple[Known, ...]] = (
    _gpu_unavailable(
        "the NVIDIA driver of the node is too old for the engine's CUDA",
        "update the driver, or take an engine or image for an older CUDA; `nvidia-smi` names the "
        "newest CUDA that the driver serves",
        pattern=(
            r"CUDA driver version is insufficient|NVIDIA driver on your system is too old"
            r"|cudaErrorInsufficientDriver|forward compatibility was attempted on non supported"
            r"|unsupported display driver / cuda driver combination|SYSTEM_DRIVER_MISMATCH"
        ),
        example="CUDA driver version is insufficient for CUDA runtime version",
        source="CUDA errors 35, 803, 804; PyTorch",
    ),
    _gpu_unavailable(
        "the engine's CUDA and the driver of the node do not go together",
        "align the driver's version with the CUDA of the engine or its image; `gpusteward check "
        "cuda IMAGE` says of every node whether its driver serves it",
        pattern=r"CUDA_ERROR_INVALID_IMAGE|device kernel image is invalid",
        example="CUDA error: device kernel image is invalid",
        source="CUDA error 200; accelerator guide, Common Error Codes",
    ),
    _gpu_unavailable(
        "the engine brings code (PTX) that is newer than the driver of the node",
        "update the driver, or recompile the engine with an explicit -arch=sm_xx for the GPU, "
        "which leaves nothing for the driver to compile",
        pattern=r"UNSUPPORTED_PTX_VERSION|compiled with an unsupported toolchain",
        example="CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        source="CUDA error 222; accelerator guide, Common Error Codes",
    ),
    _gpu_unavailable(
        "the NVLink fabric of the node is not up",
        "`sudo systemctl start nvidia-fabricmanager`, of exactly the driver's version; "
        "`nvidia-smi -q | grep -A2 Fabric` then says Completed",
        pattern=r"system not yet initialized|SYSTEM_NOT_READY|cudaErrorSystemNotReady",
        example="Error 802: system not yet initialized",
        source="CUDA error 802, boards with NVSwitch",
    ),
    _gpu_unavailable(
        "the engine cannot reach the node's MPS server",
        "`sudo nvidia-cuda-mps-control -d` starts it; CUDA_MPS_PIPE_DIRECTORY has to be the same "
        "for both, and mounted into a container",
        pattern=r"CUDA_ERROR_MPS_|cudaErrorMps|MPS client failed to connect",
        example="CUDA error: MPS client failed to connect to the MPS control daemon",
        source="CUDA errors 805 to 809",
    ),
    _gpu_unavailable(
        "the GPU is busy or set to be used by one process only",
        "`nvidia-smi --query-compute-apps=pid,name --format=csv` names who is on it; "
        "`sudo nvidia-smi -c DEFAULT` ends exclusive use",
        pattern=r"CUDA-capable device\(s\) is/are busy|cudaErrorDevicesUnavailable",
        example="CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        source="CUDA error 46",
    ),
    known_failure(
        FailureKind.BAD_PARAMETER,
        "the engine is to use more GPUs than it was granted",
        "tensor, pipeline and data parallel sizes multiply to the GPUs of a reservation: lower "
        "them, or spell them so that they are counted (`gpusteward validate FILE` shows the count)",
        pattern=(
            r"larger than the number of available GPUs|invalid device ordinal"
            r"|exceeds the (total )?number of available GPUs"
        ),
        example="World size (4) is larger than the number of available GPUs (1) in this node.",
        source="vLLM; CUDA error 101",
    ),
    _gpu_unavailable(
        "the engine sees no GPU",
        "`nvidia-smi -L` on the node; a container has to be given GPUs by device requests, never "
        "by CUDA_VISIBLE_DEVICES as well; check that the engine is built for CUDA and its driver",
        pattern=(
            r"no CUDA GPUs are available|no (CUDA|ROCm)-capable device is detected"
            r"|found no NVIDIA driver on your system|CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice"
            r"|no accelerator\b.*\bavailable|failed to infer device type|no HIP GPUs are available"
            r"|libcuda\.so\.1: cannot open shared object|torch not compiled with CUDA enabled"
            r"|NVMLError_(DriverNotLoaded|LibraryNotFound|Unknown|GpuIsLost)"
            r"|CUDA unknown error - this may be due to an incorrectly set up environment"
        ),
        example="RuntimeError: No CUDA GPUs are available",
        source="PyTorch, vLLM (infer device type), SGLang (accelerator), CUDA error 100",
    ),
)

AMD_ACCESS: Final = _gpu_unavailable(
    "the engine may not open AMD's GPUs, or their driver is not loaded",
    "`ls -l /dev/kfd /dev/dri` on the node: the engine's user has to be in the groups render and "
    "video; a container is given both devices; `sudo modprobe amdgpu` loads the driver",
    pattern=(
        r"/dev/kfd( read-write)?: (permission denied|no such file)|ROCk module is NOT loaded"
        r"|amdgpu not found in modules|unable to open /dev/kfd"
    ),
    example="Unable to open /dev/kfd read-write: Permission denied",
    source="ROCm (rocminfo, rocm-smi, the HSA runtime)",
)

FAILED_DEVICES: Final[tuple[Known, ...]] = (
    known_failure(
        FailureKind.BAD_PARAMETER,
        "the GPU is too old, or another than the engine's kernels are written for",
        "ask for a newer model of GPU, or choose another attention backend or quantization; "
        "FlashAttention wants compute capability 8.0 (Ampere)",
        pattern=(
            r"only supports? (Ampere|Ada|Hopper|Blackwell|sm_?\d+)"
            r"|(is|are) only (supported|available) (on|in|for) "
            r"(FlashAttention|Ampere|Ada|Hopper|Blackwell|sm_?\d+|CUDA devices with compute)"
            r"|not supported for the current GPU|not supported in this architecture"
            r"|requires? (SM ?[>=<]|sm_?\d+|Ampere|Ada\b|Hopper|Blackwell|compute capability)"
            r"|requires \.target sm_\d+|minimum capability: \d"
        ),
        example="RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        source="FlashAttention, vLLM, SGLang, PyTorch, Triton, ptxas",
    ),
    known_failure(
        FailureKind.BAD_PARAMETER,
        "the GPU is too old for the model's number format",
        "set dtype to half (--dtype half), or take a model without FP8: bfloat16 needs compute "
        "capability 8.0, FP8 8.9; `gpusteward check precision bfloat16` says which GPUs have it",
        pattern=r"only supported on GPUs with compute capability|capability of at least",
        example=(
            "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least "
            "8.0. Your Tesla V100-PCIE-16GB GPU has compute capability 7.0."
        ),
        source="vLLM",
    ),
    known_failure(
        FailureKind.CUDA_ERROR,
        "the engine is not built for this model of GPU",
        "take a build for it (`nvidia-smi --query-gpu=name,compute_cap --format=csv` names the "
        "capability), or ask for another model of GPU",
        pattern=(
            r"no kernel image is available|CUDA_ERROR_NO_BINARY_FOR_GPU"
            r"|is not compatible with the current PyTorch installation"
            r"|(cuda|hip) error: (invalid device function|named symbol not found)"
            r"|hipErrorNoBinaryForGpu|hipErrorInvalidDeviceFunction|HSA_STATUS_ERROR_INVALID_ISA"
            r"|unsupported gpu architecture|is not defined for option 'gpu-name'|PTXASError"
            r"|illegal seek for GPU arch|TensileLibrary\S* (not found|does not exist)"
        ),
        example="CUDA error: no kernel image is available for execution on the device",
        source="CUDA error 209; PyTorch, nvcc, ptxas, Triton; ROCm, rocBLAS",
    ),
    known_failure(
        FailureKind.CUDA_ERROR,
        "the GPU reports an error of its hardware",
        "`nvidia-smi -q -d ECC,ROW_REMAPPER` and `sudo dmesg | grep -i xid`; "
        "`gpusteward cordon NODE` and reset the GPU (`sudo nvidia-smi -r -i N`) or reboot",
        pattern=(
            r"uncorrectable (ECC|NVLink) error|ECC_UNCORRECTABLE|NVRM: Xid|hardware stack error"
            r"|cudaErrorHardwareStackError|HW exception by GPU"
            r"|amdgpu: .*(ring \S+ timeout|GPU reset)"
        ),
        example="CUDA error: uncorrectable ECC error encountered",
        source="CUDA error 214; NVRM",
    ),
    known_failure(
        FailureKind.RANK_FAILED,
        "the GPUs of one engine could not talk to each other (NCCL)",
        "NCCL_DEBUG=INFO in the engine's environment names the cause; between nodes check "
        "NCCL_SOCKET_IFNAME and the firewall, inside one /dev/shm and `nvidia-smi topo -m`",
        pattern=(
            r"NCCL error|ncclSystemError|ncclInternalError|ncclRemoteError|ncclUnhandledCudaError"
            r"|caught collective operation timeout|DistBackendError|no socket interface found"
        ),
        example="torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3384",
        source="NCCL 2.x through PyTorch",
        is_consequence=True,
    ),
    known_failure(
        FailureKind.RANK_FAILED,
        "the ranks of one engine did not all find each other in time",
        "look at the log of every rank for the one that ended first; check that the nodes reach "
        "the master's address and port",
        pattern=(
            r"DistStoreError|DistNetworkError|timed out after \d+ seconds waiting for clients"
            r"|client socket has (failed|timed out)|worker proc \S+ died unexpectedly"
            r"|connection closed by peer"
        ),
        example=(
            "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. "
            "1/2 clients joined."
        ),
        source="PyTorch's TCPStore and gloo; vLLM",
        is_consequence=True,
    ),
    known_failure(
        FailureKind.CUDA_ERROR,
        "a GPU computation touched memory that is not its own",
        "on a virtual GPU compare the engine's CUDA with the baseline: `gpusteward check cuda "
        "IMAGE --mode vgpu --baseline VERSION`; on a whole one it is a fault of the engine "
        "(CUDA_LAUNCH_BLOCKING=1 shows where) or of one GPU, `sudo dmesg | grep -i xid`",
        pattern=(
            r"CUDA_ERROR_ILLEGAL_ADDRESS|cudaErrorIllegalAddress|illegal memory access"
            r"|memory access fault by GPU|HSA_STATUS_ERROR_MEMORY_FAULT"
        ),
        example="CUDA error: an illegal memory access was encountered",
        source="CUDA error 700; accelerator guide, Common Error Codes",
    ),
    known_failure(
        FailureKind.CUDA_ERROR,
        "CUDA failed without a reason, as it may with a driver older than the engine's CUDA",
        "`gpusteward check cuda IMAGE` says of every node whether its driver serves it; on one "
        "node only: `sudo dmesg | grep -i nvrm`, and reload the driver or reboot",
        pattern=r"CUDA_ERROR_UNKNOWN|cudaErrorUnknown|CUDA error: unknown error",
        example="RuntimeError: CUDA error: unknown error",
        source="CUDA error 999; accelerator guide, Formal Rules",
    ),
    known_failure(
        FailureKind.CUDA_ERROR,
        "a GPU computation failed",
        "once: try it again on another node; always with these parameters: a fault of the engine "
        "(CUDA_LAUNCH_BLOCKING=1 shows where); on one node only: its GPU, `sudo dmesg | grep -i "
        "xid`",
        pattern=(
            r"(CUDA|HIP) (driver |runtime )?error\b|CUDA_ERROR_[A-Z]|cudaError[A-Z]|CUBLAS_STATUS_"
            r"|CUDNN_STATUS_|CUDA_EXCEPTION|AcceleratorError|device-side assert triggered"
            r"|HSA_STATUS_ERROR|hipError[A-Z]|MIOpen Error"
        ),
        example="CUDA error: device-side assert triggered",
        source="CUDA errors 710, 719; cuBLAS, cuDNN; llama.cpp (ggml_cuda_error)",
    ),
)
