// Templates shared by the parts of Player.
#pragma once

#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/fuzz/player.h"

namespace cairn::fuzz {

template <typename Request>
std::string TextOf(const Request& request) {
  std::ostringstream text;
  text << request;
  return text.str();
}

template <typename Request>
void Player::Trace(const char* method, const Request& request) {
  if (trace_ != nullptr) trace_(absl::StrCat(method, " ", TextOf(request)));
}

template <typename Reply, typename Request>
Outcome Player::Send(const char* method, Reply& reply, const Request& request,
                     void (Service::*call)(Reply&, const Request&)) {
  const auto once = [&] {
    reply = Reply();
    return target_.Call([&](Service& service) { (service.*call)(reply, request); });
  };
  return around_ == nullptr ? once() : around_(method, once);
}

template <typename Reply, typename Request>
Outcome Player::SendStrange(const char*, Reply& reply, const Request& request,
                            void (Service::*call)(Reply&, const Request&)) {
  return target_.Call([&](Service& service) { (service.*call)(reply, request); });
}

// A finding ends the enclosing function.
#define FUZZ_RETURN_IF(finding) \
  if (Finding found_ = (finding); found_) return found_

}  // namespace cairn::fuzz
