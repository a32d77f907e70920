import type {
  AuditList,
  AvailabilityView,
  ClusterDeviceList,
  DatasetList,
  DecisionList,
  DriftList,
  EngineList,
  EngineSeriesView,
  EventList,
  ExperimentDetail,
  ExperimentDetails,
  Explanation,
  FailuresView,
  GpuList,
  LogChunk,
  Me,
  NamespaceList,
  NodeList,
  PodList,
  PresetList,
  RequestsView,
  ReservationList,
  SecretList,
  SeriesView,
  TaskList,
  TaskPlan,
  TaskView,
  TokenList,
  UsageView,
  WaitsView,
  WasteView,
  WaterfallView,
} from "@schemas/messages";
import text from "./answers.json?raw";

/** A real platform's answers by name; a contract test holds them to these types. */
interface Answers {
  me: Me;
  namespaces: NamespaceList;
  gpus: GpuList;
  nodes: NodeList;
  clusterDevices: ClusterDeviceList;
  holding: ReservationList;
  waiting: ReservationList;
  past: ReservationList;
  explanation: Explanation;
  tasks: TaskList;
  task: TaskView;
  experimentsOfTask: ExperimentDetails;
  experiments: ExperimentDetails;
  experiment: ExperimentDetail;
  engineSeries: EngineSeriesView;
  log: LogChunk;
  requests: RequestsView;
  events: EventList;
  waterfall: WaterfallView;
  fleetSeries: SeriesView;
  gpuSeries: SeriesView;
  nodeSeries: SeriesView;
  pods: PodList;
  presets: PresetList;
  engines: EngineList;
  usage: UsageView;
  waste: WasteView;
  waits: WaitsView;
  failures: FailuresView;
  tokens: TokenList;
  audit: AuditList;
  datasets: DatasetList;
  secrets: SecretList;
  decisions: DecisionList;
  drifts: DriftList;
  plan: TaskPlan;
  availability: AvailabilityView;
}

export const answers = JSON.parse(text) as Answers;
