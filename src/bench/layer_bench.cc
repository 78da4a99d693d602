#include "bench/layer_bench.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/clock.h"
#include "bench/attention_bench.h"
#include "bench/gemm_bench.h"
#include "bench/random_attention.h"
#include "bench/random_fill.h"
#include "bench/random_weights.h"
#include "bench/shapes.h"
#include "layers/meter.h"
#include "layers/mla_layer.h"
#include "layers/transformer.h"

namespace mla::bench {
namespace {

WeightFormat Bf16Format() { return *FindWeightFormat("bf16"); }

std::int64_t QWidth(const contract::ModelConfig& c) {
  return c.num_attention_heads * (c.qk_nope_head_dim + c.qk_rope_head_dim);
}

CacheLayout LayoutOf(const LayerPlan& plan) {
  return MakeLatentLayout(plan.config.kv_lora_rank, plan.config.qk_rope_head_dim, 1, plan.kv_dtype);
}

// The layer's products, in order: q_a+kv_a (or q+kv_a), q_b where there is one, o.
std::vector<WeightShape> ProductsOf(const contract::ModelConfig& config) {
  std::vector<WeightShape> shapes = ProjectionShapes(config);
  shapes.resize(config.q_lora_rank ? 3 : 2);
  return shapes;
}

std::vector<ops::PackedMatrix*> MatricesOf(weights::Attention* a, const contract::ModelConfig& config) {
  if (config.q_lora_rank) return {&a->q_a_kv_a, &a->q_b, &a->o};
  return {&a->q_a_kv_a, &a->o};
}

AttentionPlan AttentionOf(const LayerPlan& plan, Form form) {
  AttentionPlan attention;
  attention.dims = weights::DimsOf(plan.config);
  attention.form = form;
  attention.kv_dtype = plan.kv_dtype;
  attention.keys = plan.keys;
  return attention;
}

// Precondition of what is measured: it can be had.
MlaAttention Sound(Result<MlaAttention> attention) {
  MLA_CHECK(attention.ok());
  return std::move(attention).value();
}

StepWork PhaseWorkOf(const LayerPlan& plan, std::int64_t rows, Isa isa) {
  StepWork out{};
  std::vector<StepPhase> phases = {StepPhase::kQaKva, StepPhase::kOutput};
  if (plan.config.q_lora_rank) phases.insert(phases.begin() + 1, StepPhase::kQb);
  const std::vector<WeightShape> shapes = ProductsOf(plan.config);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const Work work = GemmWork(shapes[i], Bf16Format(), rows, isa);
    out[static_cast<std::size_t>(phases[i])] = {work.operations, work.bytes};
  }
  return out;
}

}  // namespace

Work LayerWork(const LayerPlan& plan, Form form, std::int64_t rows, Isa isa) {
  Work work = AttentionWork(AttentionOf(plan, form), rows, isa);
  for (const WeightShape& shape : ProductsOf(plan.config)) {
    const Work product = GemmWork(shape, Bf16Format(), rows, isa);
    work.operations += product.operations;
    work.bytes += product.bytes;
  }
  return work;
}

LayerBench::LayerBench(const LayerPlan& plan) : plan_(plan) {
  // The layer's feed-forward is not run, and takes no part of the workspace.
  plan_.config.moe.reset();
  plan_.config.intermediate_size = 1;
}

layers::StepLimits LayerBench::Limits(int workers) const {
  layers::StepLimits limits;
  limits.max_rows = plan_.max_rows;
  limits.max_keys = plan_.keys;
  limits.workers = workers;
  limits.profile = plan_.profile;
  return limits;
}

void LayerBench::Place(int workers, Carver* carver) {
  const contract::ModelConfig& c = plan_.config;
  const std::vector<WeightShape> shapes = ProductsOf(c);
  std::int64_t source = 0;
  std::size_t i = 0;
  for (ops::PackedMatrix* w : MatricesOf(&layer_.attention, c)) {
    const WeightShape& shape = shapes[i++];
    *w = ShapeOf(Bf16Format(), shape.n, shape.k);
    w->data = carver->Take<std::byte>(w->bytes());
    source = std::max(source, SourceBytes(Bf16Format(), shape.n, shape.k));
  }
  source_ = carver->Take<std::byte>(source);
  other_ = carver->Take<std::byte>(plan_.working_set);
  kv_b_ = carver->Take<float>(KvBElements(weights::DimsOf(c)));
  norms_ = carver->Take<float>(std::max({c.hidden_size, c.q_lora_rank.value_or(0), c.kv_lora_rank}));
  x_ = carver->Take<float>(plan_.max_rows * c.hidden_size);
  layers::PlaceWorkspace(c, Limits(workers), carver, &ws_);
}

std::int64_t LayerBench::PlannedBytes(const LayerPlan& plan, int workers) {
  LayerBench bench(plan);
  Carver carver;
  bench.Place(workers, &carver);
  const contract::ModelConfig& c = plan.config;
  const CacheLayout layout = LayoutOf(plan);
  return carver.used() + KvBWeights::Bytes(weights::DimsOf(c), WeightDType::kBF16) +
         layout.StorageBytes(layout.PagesFor(plan.keys)) + RopeTable::Bytes(c.rope, plan.keys) +
         MlaAttention::WorkspaceBytes(layers::AttentionOptions(c, bench.Limits(workers), ""));
}

Status LayerBench::Fill(Executor& executor) {
  const contract::ModelConfig& c = plan_.config;
  for (const ops::PackedMatrix* w : MatricesOf(&layer_.attention, c)) FillWeights(Bf16Format(), source_, *w, executor);
  FillNormal(reinterpret_cast<float*>(other_), plan_.working_set / 4, TensorKey(1, "other"), executor);
  FillNormal(x_, plan_.max_rows * c.hidden_size, TensorKey(1, "x"), executor);
  std::fill_n(norms_, std::max({c.hidden_size, c.q_lora_rank.value_or(0), c.kv_lora_rank}), 1.0F);
  layer_.input_norm = layer_.attention.q_a_norm = layer_.attention.kv_a_norm = norms_;
  MLA_ASSIGN_OR_RETURN(KvBWeights kv_b, RandomKvB(weights::DimsOf(c), WeightDType::kBF16, kv_b_, executor));
  layer_.attention.kv_b.emplace(std::move(kv_b));
  const CacheLayout layout = LayoutOf(plan_);
  MLA_ASSIGN_OR_RETURN(LatentCache cache, LatentCache::Create(layout, layout.PagesFor(plan_.keys)));
  cache_.emplace(std::move(cache));
  FillCacheRows(cache_->Layer(0), executor);
  pages_.resize(static_cast<std::size_t>(layout.PagesFor(plan_.keys)));
  std::iota(pages_.begin(), pages_.end(), 0);
  MLA_ASSIGN_OR_RETURN(RopeTable rope, RopeTable::Create(c.rope, plan_.keys));
  rope_.emplace(std::move(rope));
  return {};
}

Result<LayerBench> LayerBench::Create(const LayerPlan& plan, Executor& executor) {
  LayerBench bench(plan);
  Carver count;
  bench.Place(executor.workers(), &count);
  MLA_ASSIGN_OR_RETURN(bench.buffer_, Buffer::Allocate(count.used(), "bench layer"));
  Carver carver(bench.buffer_);
  bench.Place(executor.workers(), &carver);
  MLA_RETURN_IF_ERROR(bench.Fill(executor));
  return bench;
}

Form LayerBench::FormFor(std::int64_t rows) const {
  return plan_.form.value_or(ChooseForm(FormTable(), weights::DimsOf(plan_.config), plan_.keys - rows, rows));
}

void LayerBench::EmptyCaches(Probe& probe) const {
  probe.ReadSeconds({other_, static_cast<std::size_t>(plan_.working_set)});
}

// What a case runs, over and over: the layer, and its kernels by themselves.
class LayerBench::Case {
 public:
  Case(const LayerBench& bench, Probe& probe, Isa isa, std::int64_t rows);

  // Each kernel by itself, its weights and cache rows from memory.
  void RunKernels();
  // Before RunLayer, outside its time.
  void Prepare();
  void RunLayer();

  // All but the first runs, which are to warm up.
  std::vector<KernelAlone> kernels() const;
  Summary kernel_seconds() const;
  std::span<const StepProfile> profiles() const { return std::span(profiles_).subspan(1); }
  Form form() const { return sequence_.form; }

 private:
  struct Kernel {
    std::string name;
    std::function<void()> run;
    std::vector<std::span<const std::byte>> warm;  // read before, so that it lies in caches
    std::vector<double> seconds;
  };
  void AddProduct(const std::string& name, const ops::GemmProblem& problem);
  void AddKernels();

  const LayerBench& bench_;
  Probe& probe_;
  MlaAttention attention_;
  layers::AttendFn attend_;
  std::vector<std::int32_t> positions_;
  std::vector<std::int64_t> slots_;
  AttentionSequence sequence_;
  layers::Batch batch_;
  CacheLayerView cache_;
  layers::StepMeter measured_;
  layers::MlaContext plain_;
  layers::MlaContext profiled_;
  std::vector<Kernel> kernels_;
  std::vector<StepProfile> profiles_;
};

LayerBench::Case::Case(const LayerBench& bench, Probe& probe, Isa isa, std::int64_t rows)
    : bench_(bench),
      probe_(probe),
      attention_(Sound(MlaAttention::Create(
          layers::AttentionOptions(bench.plan_.config, bench.Limits(probe.executor().workers()), IsaName(isa))))),
      positions_(static_cast<std::size_t>(rows)),
      cache_(bench.cache_->Layer(0)),
      measured_(probe.executor().workers()),
      plain_{bench.plan_.config, ops::KernelsFor(isa), *bench.rope_, attend_, probe.executor(), bench.ws_},
      profiled_{bench.plan_.config, plain_.kernels, *bench.rope_, attend_, measured_.meter, bench.ws_, &measured_} {
  attention_.FirstTouch(probe.executor());
  attend_ = [this](const CacheLayerView& cache, const KvBWeights& kv_b, std::span<const AttentionSequence> sequences,
                   const float* q, float* out, float* lse,
                   Executor& executor) { attention_.Run(cache, kv_b, sequences, q, out, lse, executor); };
  std::iota(positions_.begin(), positions_.end(), static_cast<std::int32_t>(bench.plan_.keys - rows));
  slots_.assign(positions_.begin(), positions_.end());  // pages lie in order
  sequence_ = {bench.pages_, 0, rows, bench.plan_.keys, bench.FormFor(rows)};
  batch_ = {positions_, positions_, slots_, std::span(&sequence_, 1)};
  measured_.meter.Watch(&probe.executor());
  measured_.products.loaded = {bench.buffer_.data(), static_cast<std::size_t>(bench.buffer_.bytes())};
  AddKernels();
}

void LayerBench::Case::AddProduct(const std::string& name, const ops::GemmProblem& p) {
  const auto whole = [](const void* data, std::int64_t bytes) {
    return std::span(static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes / 64 * 64));
  };
  const ops::GemmMemory& memory = bench_.ws_.gemm;
  Kernel kernel{name, [this, p] { ops::Gemm(plain_.gemm(), p); }, {}, {}};
  kernel.warm = {whole(p.x, ((p.m - 1) * p.ldx + p.w.k) * 4), whole(p.y, ((p.m - 1) * p.ldy + p.w.n) * 4),
                 whole(memory.inputs, std::min(memory.input_bytes, ops::PackedInputBytes(p.m, p.w.k)))};
  kernels_.push_back(std::move(kernel));
}

void LayerBench::Case::AddKernels() {
  const contract::ModelConfig& c = bench_.plan_.config;
  const layers::Workspace& ws = bench_.ws_;
  const weights::Attention& a = bench_.layer_.attention;
  const std::int64_t rows = batch_.rows();
  AddProduct(ProductsOf(c).front().name, {ws.normed, c.hidden_size, ws.q_a_kv_a, a.q_a_kv_a.n, rows, a.q_a_kv_a});
  if (c.q_lora_rank) AddProduct("q_b", {ws.q_a_kv_a, a.q_a_kv_a.n, ws.q, QWidth(c), rows, a.q_b});
  kernels_.push_back({"attention", [this] { layers::Attend(plain_, bench_.layer_, cache_, batch_); }, {}, {}});
  // Not onto the residual, which is the layer's alone: normed is written by every run.
  AddProduct("o", {ws.attended, c.num_attention_heads * c.v_head_dim, ws.normed, c.hidden_size, rows, a.o});
}

void LayerBench::Case::RunKernels() {
  for (Kernel& kernel : kernels_) {
    bench_.EmptyCaches(probe_);
    for (const std::span<const std::byte>& warm : kernel.warm) probe_.ReadSeconds(warm);
    const auto begin = Clock::now();
    kernel.run();
    kernel.seconds.push_back(Since(begin));
  }
}

void LayerBench::Case::Prepare() {
  bench_.EmptyCaches(probe_);
  // The layer works in place, on what the layer before it has just written.
  std::copy_n(bench_.x_, batch_.rows() * bench_.plan_.config.hidden_size, bench_.ws_.x);
  if (!bench_.plan_.profile) return;
  attention_.ResetProfile();
  measured_.Reset();
}

void LayerBench::Case::RunLayer() {
  const layers::MlaContext& context = bench_.plan_.profile ? profiled_ : plain_;
  const auto begin = Clock::now();
  layers::ProjectAndStore(context, bench_.layer_, cache_, batch_);
  layers::Attend(context, bench_.layer_, cache_, batch_);
  layers::AddAttention(context, bench_.layer_, batch_.rows());
  if (!bench_.plan_.profile) return;
  const double seconds = Since(begin);
  profiles_.push_back(measured_.Profile(attention_.profile()));
  profiles_.back().seconds = seconds;
}

std::vector<KernelAlone> LayerBench::Case::kernels() const {
  std::vector<KernelAlone> out;
  for (const Kernel& kernel : kernels_) out.push_back({kernel.name, Summarise(std::span(kernel.seconds).subspan(1))});
  return out;
}

Summary LayerBench::Case::kernel_seconds() const {
  std::vector<double> sums(kernels_.front().seconds.size());
  for (const Kernel& kernel : kernels_) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += kernel.seconds[i];
  }
  return Summarise(std::span(sums).subspan(1));
}

CaseResult LayerBench::Run(Probe& probe, Isa isa, std::int64_t rows, const Repeats& repeats) {
  Case layer(*this, probe, isa, rows);
  CaseResult result;
  result.name = fmt::format("{} {} S={}", plan_.name, FormName(layer.form()), plan_.keys);
  result.rows = rows;
  result.keys = plan_.keys;
  result.requests = 1;
  result.format = plan_.kv_dtype == DType::kBF16 ? "bf16" : "f32";
  result.work = LayerWork(plan_, layer.form(), rows, isa);
  result.working_set = plan_.working_set > 0 ? plan_.working_set : static_cast<std::int64_t>(result.work.bytes);
  Timed timed;
  timed.prepare = [&] {
    layer.RunKernels();
    layer.Prepare();
  };
  timed.run = [&] { layer.RunLayer(); };
  timed.read = [&] {
    EmptyCaches(probe);
    const ops::PackedMatrix& o = layer_.attention.o;
    return probe.ReadRate({o.data, static_cast<std::size_t>(o.bytes())});
  };
  result.measured = MeasureCase(probe, result.work, timed, repeats);
  result.kernels = layer.kernels();
  result.kernel_seconds = layer.kernel_seconds();
  if (plan_.profile) {
    result.profile = SummariseSteps(weights::DimsOf(plan_.config), PhaseWorkOf(plan_, rows, isa), layer.profiles(),
                                    probe.executor().workers());
  }
  return result;
}

}  // namespace mla::bench
