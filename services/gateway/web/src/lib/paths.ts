/** Every address of the page; nothing else writes one. */
export const paths = {
  fleet: () => "/",
  node: (nodeId: string) => `/nodes/${encodeURIComponent(nodeId)}`,
  gpu: (nodeId: string, uuid: string) =>
    `/gpus/${encodeURIComponent(nodeId)}/${encodeURIComponent(uuid)}`,
  tasks: () => "/tasks",
  task: (taskId: string) => `/tasks/${taskId}`,
  newTask: () => "/tasks/new",
  measure: () => "/tasks/measure",
  experiment: (experimentId: string) => `/experiments/${experimentId}`,
  comparison: () => "/compare",
  leaderboard: () => "/leaderboard",
  queue: () => "/queue",
  reservations: () => "/reservations",
  monitoring: () => "/monitoring",
  reports: () => "/reports",
  admin: () => "/admin",
  account: () => "/account",
  /** Of the gateway: leads to the provider, and back to a place of the page. */
  signIn: (place: string) => `/sign-in/start?place=${encodeURIComponent(place)}`,
} as const;
