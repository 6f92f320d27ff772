// All of the worker library that programs commonly use, with one include: #include "cairn/cairn.h".
// The macros of common/status.h, whose names are not the library's alone, are not in it.
#pragma once

#include "common/config/cluster_config.h"
#include "common/config/job_config.h"
#include "worker/client/ps_client.h"
#include "worker/cluster/cluster_resolver.h"
#include "worker/cluster/simple_cluster_resolver.h"
#include "worker/cluster/tf_config_cluster_resolver.h"
#include "worker/collective/gloo_group.h"
#include "worker/collective/in_process_group.h"
#include "worker/input/dataset/dataset.h"
#include "worker/input/dataset/distributed_dataset.h"
#include "worker/strategy/central_storage_strategy.h"
#include "worker/strategy/mirrored_strategy.h"
#include "worker/strategy/multi_worker_mirrored_strategy.h"
#include "worker/strategy/one_device_strategy.h"
#include "worker/strategy/registry.h"
#include "worker/strategy/sharded_variable.h"
#include "worker/strategy/strategy.h"
#include "worker/strategy/variable_lookup.h"
#include "worker/trainer/in_process_server.h"
#include "worker/trainer/trainer.h"
