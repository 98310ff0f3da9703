"""Data types that all layers share: tasks, messages, turns, rewards, episodes (trajectories)."""

from pettingllms.types.episode_files import episode_files, read_episodes, write_episodes
from pettingllms.types.episodes import Episode, Group, Member, Step, Task
from pettingllms.types.image_files import image_file, image_loader
from pettingllms.types.messages import (
    Image,
    Message,
    Part,
    Table,
    assistant,
    images_of,
    system,
    user,
)
from pettingllms.types.records import (
    episode_from_json,
    episode_line,
    episode_to_json,
)
from pettingllms.types.rewards import (
    NO_REWARDS,
    TEAM,
    Failed,
    Reward,
    Rewards,
    Scored,
    Submission,
    total,
)
from pettingllms.types.sampling import (
    PromptTooLong,
    Renderer,
    Sample,
    Sampler,
    SampleRequest,
    ScoreRequest,
)
from pettingllms.types.shards import Shard, ShardWriter, Summarize, Summary
from pettingllms.types.turns import (
    Credit,
    Ids,
    LogProbs,
    TreeLinks,
    Turn,
    Usage,
    Values,
    VersionRun,
)

__all__ = [
    "NO_REWARDS",
    "TEAM",
    "Credit",
    "Episode",
    "Failed",
    "Group",
    "Ids",
    "Image",
    "LogProbs",
    "Member",
    "Message",
    "Part",
    "PromptTooLong",
    "Renderer",
    "Reward",
    "Rewards",
    "Sample",
    "SampleRequest",
    "Sampler",
    "ScoreRequest",
    "Scored",
    "Shard",
    "ShardWriter",
    "Step",
    "Submission",
    "Summarize",
    "Summary",
    "Table",
    "Task",
    "TreeLinks",
    "Turn",
    "Usage",
    "Values",
    "VersionRun",
    "assistant",
    "episode_files",
    "episode_from_json",
    "episode_line",
    "episode_to_json",
    "image_file",
    "image_loader",
    "images_of",
    "read_episodes",
    "system",
    "total",
    "user",
    "write_episodes",
]
