#include "common/optimizer/kernels.h"

#include "glog/logging.h"

namespace cairn {

Kernels KernelsFor(const OptimizerLoop& loop) {
  using Kind = OptimizerLoop::Kind;
  switch (loop.kind) {
    case Kind::kNone: break;
    case Kind::kSgd: return SgdKernels(loop.guarded);
    case Kind::kMomentum: return MomentumKernels(loop.nesterov, loop.guarded);
    case Kind::kAdagrad: return AdagradKernels(loop.guarded);
    case Kind::kAdadelta: return AdadeltaKernels(loop.guarded);
    case Kind::kRmsprop: return RmspropKernels(loop.momentum, loop.centered, loop.guarded);
    case Kind::kAdam: return AdamKernels(loop.amsgrad, loop.guarded);
    case Kind::kAdamax: return AdamaxKernels(loop.guarded);
    case Kind::kNadam: return NadamKernels(loop.guarded);
    case Kind::kLion: return LionKernels(loop.guarded);
    case Kind::kFtrl: return FtrlKernels(loop.square_root, loop.guarded);
  }
  LOG(FATAL) << "no kernels of optimizer loop " << static_cast<int>(loop.kind);
}

}  // namespace cairn
