// Value::ToTensor, the only method of Value that depends on the calling context.
#include "common/errors.h"
#include "common/status.h"
#include "worker/strategy/context.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/value.h"
#include "worker/strategy/variable.h"

namespace cairn {

absl::StatusOr<Tensor> Value::ToTensor() const {
  switch (kind_) {
    case Kind::kInteger:
      if (const auto narrow = static_cast<int32_t>(integer()); narrow == integer()) {
        return Tensor::Scalar<int32_t>(narrow);
      }
      return Tensor::Scalar<int64_t>(integer());
    case Kind::kNumber: return Tensor::Full(DType::kFloat32, {}, number());
    case Kind::kArray: return array();
    case Kind::kTensor: return tensor();
    case Kind::kVariable:
      if (variable() == nullptr) break;
      return variable()->Read();
    case Kind::kPerReplica:
    case Kind::kMirrored:
      if (const auto context = GetReplicaContext(); context != nullptr &&
                                                    context->strategy() != nullptr &&
                                                    !context->strategy()->is_default()) {
        ASSIGN_OR_RETURN(const Value own, SelectReplica(*this, context->local_replica()));
        return own.ToTensor();
      }
      if (kind_ == Kind::kMirrored && !items().empty()) return items()[0].ToTensor();
      return InvalidArgument(TypeText(),
                             " has no single value here, which is not inside a replica "
                             "function; use Strategy::Reduce or LocalResults");
    default: break;
  }
  return InvalidArgument("found ", TypeText(), "; expected a tensor");
}

}  // namespace cairn
