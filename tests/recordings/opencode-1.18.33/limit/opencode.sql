CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded80495001zLllcbCx38ctk0','ses_e2127fc18fferpyuLH8GBZCBdN',1794740061333,1794740066887,'{"role":"user","time":{"created":1794740061333},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded80cd60016Zfsnn96tnMIoS','ses_e2127fc18fferpyuLH8GBZCBdN',1794740063446,1794740066429,'{"parentID":"msg_1ded80495001zLllcbCx38ctk0","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740063446,"completed":1794740066428},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1ded8188c001CUVoHmt6kvWldy','ses_e2127fc18fferpyuLH8GBZCBdN',1794740066445,1794740066800,'{"parentID":"msg_1ded80495001zLllcbCx38ctk0","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740066445,"completed":1794740066792},"finish":"tool-calls"}');
INSERT INTO "message" VALUES('msg_1ded819fd001YjZnrS7k8T1jAT','ses_e2127fc18fferpyuLH8GBZCBdN',1794740066813,1794740066817,'{"parentID":"msg_1ded80495001zLllcbCx38ctk0","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0,"tokens":{"input":0,"output":0,"reasoning":0,"cache":{"read":0,"write":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794740066813}}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded804a4001EjRmk31s88ZKCX','msg_1ded80495001zLllcbCx38ctk0','ses_e2127fc18fferpyuLH8GBZCBdN',1794740061368,1794740061371,'{"type":"text","text":"Do it."}');
INSERT INTO "part" VALUES('prt_1ded8171e001NafM2C5SVZnaUM','msg_1ded80cd60016Zfsnn96tnMIoS','ses_e2127fc18fferpyuLH8GBZCBdN',1794740066078,1794740066081,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded8172d001jGqmW4k2uQGQHb','msg_1ded80cd60016Zfsnn96tnMIoS','ses_e2127fc18fferpyuLH8GBZCBdN',1794740066094,1794740066410,'{"type":"tool","tool":"bash","callID":"call_main_00_00","state":{"status":"completed","input":{"command":"echo 0"},"output":"0\n","metadata":{"output":"0\n","exit":0,"truncated":false},"title":"echo 0","time":{"start":1794740066141,"end":1794740066409}}}');
INSERT INTO "part" VALUES('prt_1ded81871001df185ciAxQ5heI','msg_1ded80cd60016Zfsnn96tnMIoS','ses_e2127fc18fferpyuLH8GBZCBdN',1794740066417,1794740066420,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1ded8192a001vS71G27tvT9QB6','msg_1ded8188c001CUVoHmt6kvWldy','ses_e2127fc18fferpyuLH8GBZCBdN',1794740066602,1794740066604,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded8193f001Ys3il5GyRSn5zL','msg_1ded8188c001CUVoHmt6kvWldy','ses_e2127fc18fferpyuLH8GBZCBdN',1794740066624,1794740066764,'{"type":"tool","tool":"bash","callID":"call_main_01_00","state":{"status":"completed","input":{"command":"echo 1"},"output":"1\n","metadata":{"output":"1\n","exit":0,"truncated":false},"title":"echo 1","time":{"start":1794740066658,"end":1794740066763}}}');
INSERT INTO "part" VALUES('prt_1ded819d4001kMXIaHAYP4l7Ob','msg_1ded8188c001CUVoHmt6kvWldy','ses_e2127fc18fferpyuLH8GBZCBdN',1794740066772,1794740066775,'{"reason":"tool-calls","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
CREATE TABLE `session` (
          `id` text PRIMARY KEY,
          `project_id` text NOT NULL,
          `workspace_id` text,
          `parent_id` text,
          `slug` text NOT NULL,
          `directory` text NOT NULL,
          `path` text,
          `title` text NOT NULL,
          `version` text NOT NULL,
          `share_url` text,
          `summary_additions` integer,
          `summary_deletions` integer,
          `summary_files` integer,
          `summary_diffs` text,
          `metadata` text,
          `cost` real DEFAULT 0 NOT NULL,
          `tokens_input` integer DEFAULT 0 NOT NULL,
          `tokens_output` integer DEFAULT 0 NOT NULL,
          `tokens_reasoning` integer DEFAULT 0 NOT NULL,
          `tokens_cache_read` integer DEFAULT 0 NOT NULL,
          `tokens_cache_write` integer DEFAULT 0 NOT NULL,
          `revert` text,
          `permission` text,
          `agent` text,
          `model` text,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `time_compacting` integer,
          `time_archived` integer,
          CONSTRAINT `fk_session_project_id_project_id_fk` FOREIGN KEY (`project_id`) REFERENCES `project`(`id`) ON DELETE CASCADE
        );
INSERT INTO "session" VALUES('ses_e2127fc18fferpyuLH8GBZCBdN','global',NULL,NULL,'quick-lagoon','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794740061159,1794740066867,NULL,NULL);
