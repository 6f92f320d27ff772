// What Prometheus is told of one server. The names are public: the dashboard and the rules in
// prometheus/ use them, and a test holds all three together.
#pragma once

#include <vector>

#include "common/metrics/families.h"
#include "ps_server/core/figures.h"
#include "ps_server/net/listener_options.h"

namespace cairn {

// Of jobs beyond these, in the order of their names, there is the number alone: what a server's
// users name must not grow Prometheus without bound.
inline constexpr size_t kMostJobsMeasured = 64;

void AddServerMetrics(const EngineFigures& engine, const ListenerFigures& listener,
                      Families& families);

}  // namespace cairn
