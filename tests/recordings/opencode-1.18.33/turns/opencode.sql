CREATE TABLE `message` (
          `id` text PRIMARY KEY,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_message_session_id_session_id_fk` FOREIGN KEY (`session_id`) REFERENCES `session`(`id`) ON DELETE CASCADE
        );
INSERT INTO "message" VALUES('msg_1ded6b018001wkXNOuUuxPhqWB','ses_e21295013ffey6sQU8wvGcApGO',1794739974168,1794739975674,'{"role":"user","time":{"created":1794739974168},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded6b58c001yAhmumVvYND4iD','ses_e21295013ffey6sQU8wvGcApGO',1794739975564,1794739977304,'{"parentID":"msg_1ded6b018001wkXNOuUuxPhqWB","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794739975564,"completed":1794739977303},"finish":"stop"}');
INSERT INTO "message" VALUES('msg_1ded6c8ca0017mCszvSXz1WOYe','ses_e21295013ffey6sQU8wvGcApGO',1794739980490,1794739983169,'{"role":"user","time":{"created":1794739980490},"agent":"build","model":{"providerID":"mock","modelID":"mock-model"},"summary":{"diffs":[]}}');
INSERT INTO "message" VALUES('msg_1ded6d2d7001mNkTb1aZ7HpVHR','ses_e21295013ffey6sQU8wvGcApGO',1794739983063,1794739984890,'{"parentID":"msg_1ded6c8ca0017mCszvSXz1WOYe","role":"assistant","mode":"build","agent":"build","path":{"cwd":"/workspace","root":"/"},"cost":0.0006,"tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"modelID":"mock-model","providerID":"mock","time":{"created":1794739983063,"completed":1794739984876},"finish":"stop"}');
CREATE TABLE `part` (
          `id` text PRIMARY KEY,
          `message_id` text NOT NULL,
          `session_id` text NOT NULL,
          `time_created` integer NOT NULL,
          `time_updated` integer NOT NULL,
          `data` text NOT NULL,
          CONSTRAINT `fk_part_message_id_message_id_fk` FOREIGN KEY (`message_id`) REFERENCES `message`(`id`) ON DELETE CASCADE
        );
INSERT INTO "part" VALUES('prt_1ded6b023001E9lnNIkuqWjKiP','msg_1ded6b018001wkXNOuUuxPhqWB','ses_e21295013ffey6sQU8wvGcApGO',1794739974237,1794739974238,'{"type":"text","text":"turn one"}');
INSERT INTO "part" VALUES('prt_1ded6bc1d001U0kDHnEadQw078','msg_1ded6b58c001yAhmumVvYND4iD','ses_e21295013ffey6sQU8wvGcApGO',1794739977246,1794739977253,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded6bc27001sAafnvKsHnh0pV','msg_1ded6b58c001yAhmumVvYND4iD','ses_e21295013ffey6sQU8wvGcApGO',1794739977255,1794739977278,'{"type":"text","text":"First.","time":{"start":1794739977255,"end":1794739977277}}');
INSERT INTO "part" VALUES('prt_1ded6bc470018R62yl33aonwtK','msg_1ded6b58c001yAhmumVvYND4iD','ses_e21295013ffey6sQU8wvGcApGO',1794739977287,1794739977288,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
INSERT INTO "part" VALUES('prt_1ded6c8ce001Lnf9DkTybaJ1lO','msg_1ded6c8ca0017mCszvSXz1WOYe','ses_e21295013ffey6sQU8wvGcApGO',1794739980688,1794739980711,'{"type":"text","text":"turn two"}');
INSERT INTO "part" VALUES('prt_1ded6d97f001OyYdYxfq7VuMHW','msg_1ded6d2d7001mNkTb1aZ7HpVHR','ses_e21295013ffey6sQU8wvGcApGO',1794739984767,1794739984778,'{"type":"step-start"}');
INSERT INTO "part" VALUES('prt_1ded6d98c001fi7V319eb1d1pS','msg_1ded6d2d7001mNkTb1aZ7HpVHR','ses_e21295013ffey6sQU8wvGcApGO',1794739984780,1794739984826,'{"type":"text","text":"Second.","time":{"start":1794739984780,"end":1794739984816}}');
INSERT INTO "part" VALUES('prt_1ded6d9d5001ZW5UQJ2H8LjdfO','msg_1ded6d2d7001mNkTb1aZ7HpVHR','ses_e21295013ffey6sQU8wvGcApGO',1794739984853,1794739984855,'{"reason":"stop","type":"step-finish","tokens":{"total":120,"input":100,"output":20,"reasoning":0,"cache":{"write":0,"read":0}},"cost":0.0006}');
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
INSERT INTO "session" VALUES('ses_e21295013ffey6sQU8wvGcApGO','global',NULL,NULL,'shiny-mountain','/workspace','workspace','assay','1.18.33',NULL,0,0,0,NULL,NULL,0.0012,200,40,0,0,0,NULL,'[{"permission":"question","pattern":"*","action":"deny"},{"permission":"plan_enter","pattern":"*","action":"deny"},{"permission":"plan_exit","pattern":"*","action":"deny"}]','build','{"id":"mock-model","providerID":"mock","variant":"default"}',1794739974124,1794739984997,NULL,NULL);
