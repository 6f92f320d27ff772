// Forwards every call to another service. A class that changes a few calls derives from it and
// overrides those alone.
#pragma once

#include <memory>

#include "thrift/ParameterServer.h"

namespace cairn {

// Thread safety: that of `service`.
class ForwardingService : public wire::ParameterServerMultiface {
 public:
  // `service` must outlive this object.
  explicit ForwardingService(wire::ParameterServerIf& service) : service_(service) {
    add(std::shared_ptr<wire::ParameterServerIf>(std::shared_ptr<void>(), &service));
  }

 protected:
  wire::ParameterServerIf& service() { return service_; }

 private:
  wire::ParameterServerIf& service_;
};

}  // namespace cairn
